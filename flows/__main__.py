"""`lakeloop`: the command line."""

from flows.cli.app import run


def main() -> None:
    run()


if __name__ == "__main__":
    main()
