import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from gdn_judge.ceilings import measure

    measure.main(sys.argv[1], only_facts=sys.argv[2:] == ["--facts"])


if __name__ == "__main__":
    main()
