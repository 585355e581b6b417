# Shared by tools/demo and tools/check: finds what is missing on this machine and installs it. Sourced, not run.
# shellcheck shell=bash

# The packages that building the tools takes, by their names in Debian 12+ and Ubuntu 24.04+.
build_packages=(cmake ninja-build g++ pkg-config libfmt-dev libcli11-dev nlohmann-json3-dev libzip-dev libssl-dev)

# require_packages PACKAGE... : installs what dpkg does not know as installed. Asks first on a terminal, unless
# assume_yes is set or CI is true; without apt it names the packages and stops.
require_packages() {
    local missing=() package
    if ! command -v dpkg-query >/dev/null; then
        for package in cmake ninja c++; do command -v "$package" >/dev/null || missing+=("$package"); done
        [ ${#missing[@]} -eq 0 ] && return
        echo "Not found: ${missing[*]}. This is no Debian or Ubuntu; install what corresponds to: $*" >&2
        exit 1
    fi
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -x installed >/dev/null || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    echo "Missing packages: ${missing[*]}"
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "Not root and no sudo: apt-get install ${missing[*]}" >&2; exit 1; }
        root=(sudo)
    fi
    if [ -z "${assume_yes:-}" ] && [ "${CI:-}" != true ]; then
        [ -t 0 ] || { echo "Run with --yes to install them, or: apt-get install ${missing[*]}" >&2; exit 1; }
        read -r -p "Install them with apt-get? [Y/n] " answer
        case "$answer" in [nN]*) exit 1 ;; esac
    fi
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
