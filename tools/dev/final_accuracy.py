"""Prints the test accuracy that a run ended with; fails when it is below --at-least."""

import argparse
import json
import sys


def final_accuracy(path):
    accuracy = None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "epoch":
                accuracy = event["accuracy"]
    return accuracy


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("metrics")
    parser.add_argument("--at-least", type=float, default=0.0)
    arguments = parser.parse_args()
    accuracy = final_accuracy(arguments.metrics)
    if accuracy is None:
        sys.exit(f"{arguments.metrics} holds no epoch")
    print(f"Test accuracy {accuracy:.2f} % ({arguments.metrics})")
    if accuracy < arguments.at_least:
        sys.exit(f"That is less than {arguments.at_least:g} %.")


if __name__ == "__main__":
    main()
