"""`asv` that remembers in a folder what publishing came to: `python -m hpml_plugins.asv.again FOLDER publish …`."""

from __future__ import annotations

import os
import sys

from asv.main import main

from hpml_plugins.asv.remembered import VARIABLE

if __name__ == "__main__":
    os.environ[VARIABLE] = sys.argv[1]
    sys.argv = ["asv", *sys.argv[2:]]
    main()
