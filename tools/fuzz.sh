#!/usr/bin/env bash
# Runs every fuzz target for a time (60s unless told): tools/fuzz.sh 10s
set -euo pipefail
span=${1:-60s}
found=0
for package in $(go list ./...); do
	dir=$(go list -f '{{.Dir}}' "$package")
	# Listed from the source, so that packages without a target are not built for it.
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | cut -d' ' -f2 | sort -u); do
		found=$((found + 1))
		echo "--- $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$span" "$package"
	done
done
echo "$found fuzz targets ran for $span each"
[ "$found" -gt 0 ]
