from gdn_judge.cli import main

raise SystemExit(main())
