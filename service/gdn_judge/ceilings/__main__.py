import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from gdn_judge.ceilings import measure

    measure.main(sys.argv[1], brief=sys.argv[2:] == ["--brief"])


if __name__ == "__main__":
    main()
