# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's version, for results written on a host, where galaxy.yml is not available."""

COLLECTION_VERSION = "1.0.0"
