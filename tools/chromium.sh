#!/usr/bin/env bash
# Makes sure that there is a Chromium for the browser tests: installs Debian's package as root on Debian
# and its kin, elsewhere says what to do.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
	if command -v "$name" >/dev/null; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing chromium" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq >/dev/null
	apt-get install -y -qq --no-install-recommends chromium >/dev/null
	exit 0
fi
echo "The browser tests need Chromium: install your system's package 'chromium' (as root on Debian this script does)." >&2
exit 1
