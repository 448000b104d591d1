#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs commands for the host, on port 7000 of the guest, until vm-run is stopped: interop/guest.py.
exec python3 ./agent.py 7000
