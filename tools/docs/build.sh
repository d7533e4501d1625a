#!/usr/bin/env bash
# Makes the documentation site, .cache/docs/html: the README as its front page, the pages, and the reference of plugins and roles. A warning is an error.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$PWD/.cache/docs
source=$work/source
rm -rf "$work"
install -d -m 700 "$work" "$source" "$source/reference"

# Pages and the files that they link to lie there as they do here, so that links lead to the same things.
cp -r --parents -t "$source" ./*.md CHANGELOG.rst docs roles/*/README.md examples
cat "$source/README.md" tools/docs/contents.md >"$source/index.md"
rm "$source/README.md"
sed -i -E 's#\]\(((\.\./)*)README\.md#](\1index.md#g' "$source"/*.md "$source"/docs/*.md "$source"/roles/*/*.md

# Where the repository is only a release knows: the address in galaxy.yml, which nobody can have, is not shown.
collection=$work/ansible_collections/threadwise/smt
mkdir -p "$collection"
ln -s "$PWD"/{meta,playbooks,plugins,roles} "$collection"
grep -v '^repository: .*\.invalid$' galaxy.yml >"$collection/galaxy.yml"
ANSIBLE_COLLECTIONS_PATH=$work antsibull-docs --config-file tools/docs/antsibull-docs.cfg collection --use-current --fail-on-error --squash-hierarchy \
  --no-add-antsibull-docs-version --dest-dir "$source/reference" threadwise.smt
# There are no variables of the environment, the theme has a list of contents on each page, and its sidebar has room for names.
rm "$source/reference/environment_variables.rst"
sed -i '/^\.\. contents::/,/^$/d' "$source"/*.rst "$source"/reference/*.rst
sed -i -E 's/^    ((\w+)_(module|filter|lookup|role))$/    \2 \3 <\1>/' "$source/reference/index.rst"

sphinx-build --quiet --nitpicky --fail-on-warning --jobs 1 -c tools/docs -d "$work/doctrees" -b html "$source" "$work/html"
echo "docs: ${work#"$PWD"/}/html/index.html"
