#!/usr/bin/env bash
# Makes sure that there are a Chromium and npm for the browser tests: installs Debian's packages as root on
# Debian and its kin, elsewhere says what to do.
set -euo pipefail
missing=()
chromium=${E2E_CHROMIUM:-/usr/bin/chromium}
[ -x "$chromium" ] || missing+=(chromium)
command -v npm >/dev/null || missing+=(nodejs npm)
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing ${missing[*]}" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq >/dev/null
	apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
	exit 0
fi
echo "The browser tests need ${missing[*]}: install the packages (as root on Debian this script does), or name your Chromium in E2E_CHROMIUM." >&2
exit 1
