#!/bin/sh
# Installs a build into an empty folder and checks the tree (check_tree.sh).
# usage: check_install.sh BUILD_DIRECTORY VERSION
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$1" --prefix "$work/prefix" >/dev/null
sh "$(dirname "$0")/check_tree.sh" "$work/prefix" "$2"
