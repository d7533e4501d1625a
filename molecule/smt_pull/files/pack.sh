#!/usr/bin/env bash
# usage: pack.sh PYTHON DIRECTORY
# Packs into DIRECTORY/host.tar.gz what a host needs for ansible-pull and a guest cannot fetch, for it has no network: Ansible and requirements/minimal.txt for Debian 12's Python from the
# Python registry, git of this machine (which has to be a Debian 12, too), the collection's archive, and the fleet's repository.
set -euo pipefail
python=$1
place=$2
repository=$(cd "$(dirname "$0")/../../.." && pwd)

mkdir -p "$place/opt"
cd "$place"
if [ ! -d opt/ansible ]; then
    rm -rf opt/ansible.new
    "$python" -m pip install --quiet --disable-pip-version-check --target opt/ansible.new --python-version 3.11 --only-binary=:all: 'ansible-core>=2.19,<2.20' -r "$repository/requirements/minimal.txt"
    # Console scripts name the Python of this machine.
    find opt/ansible.new/bin -maxdepth 1 -type f -exec sed -i '1s|^#!.*|#!/usr/bin/python3|' {} +
    mv opt/ansible.new opt/ansible
fi
"$(dirname "$python")/ansible-galaxy" collection build --force --output-path . "$repository"
rm -rf fleet
git init -q fleet
cp "$repository/examples/pull/local.yml" "$repository/molecule/smt_pull/files/inventory.yml" fleet/
git -C fleet add .
git -C fleet -c user.name=fleet -c user.email=fleet@example.com commit -qm 'The policy of the fleet'

tar --owner=0 --group=0 -czf host.tar.gz opt/ansible fleet threadwise-smt-*.tar.gz -C / usr/bin/git usr/bin/git-upload-pack
