"""The command, called in this process in a folder with a fabric and a job."""

from tests.unit.conftest import muster as muster
from tests.unit.conftest import place as place
