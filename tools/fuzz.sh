#!/usr/bin/env bash
# Runs every fuzz target for a time, or a number of inputs (60s unless told): tools/fuzz.sh 10s, tools/fuzz.sh 5000x
# CI counts inputs: when a time ends while a worker is busy, go test may fail with "context deadline exceeded"
# though no input did.
# With "light" behind it, it leaves out packages whose tests link the OpenAPI validator: a fuzz build
# instruments all of that, which takes minutes. Their targets run over their seeds in every `go test`.
set -euo pipefail
span=${1:-60s}
light=${2:-}
found=0
for package in $(go list ./...); do
	dir=$(go list -f '{{.Dir}}' "$package")
	if [ "$light" = light ] && grep -qs libopenapi "$dir"/*_test.go; then
		continue
	fi
	# Listed from the source, so that packages without a target are not built for it.
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | cut -d' ' -f2 | sort -u); do
		found=$((found + 1))
		echo "--- $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$span" -fuzzminimizetime 1000x "$package"
	done
done
echo "$found fuzz targets ran, $span each"
[ "$found" -gt 0 ]
