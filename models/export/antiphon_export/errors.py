"""The error of the export package. Every failure that a user can cause or mend is an `ExportError`: the command line
prints its message and exits with status 1; anything else is a defect of the package and is shown with its traceback."""


class ExportError(Exception):
    """What is wrong with a checkpoint, an argument or the machine, and what would be right."""
