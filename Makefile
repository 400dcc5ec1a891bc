# Everything a developer does. `make` alone lists the targets. Only Go is needed; what else a target
# wants (a Chromium, a Docker) it installs where it can, or says how.

GO      ?= go
TOOL    := $(GO) tool -modfile=tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
BUILD   := CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)'

ADDR    ?= 127.0.0.1:8080
DATA    ?= ./weir-data
FUZZTIME ?= 60s

.DEFAULT_GOAL := help
.PHONY: help run build test race check bench fuzz soak e2e lint vuln house generate cover cross docker clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## build, and serve on ADDR (127.0.0.1:8080) with the data in DATA (./weir-data)
	exec bin/weir serve --http $(ADDR) --data $(DATA)

build: ## the static binary bin/weir
	$(BUILD) -o bin/weir ./cmd/weir

test: ## all tests, short forms
	$(GO) test ./...

race: ## all tests with the race detector, in random order
	$(GO) test -race -shuffle=on ./...

check: ## what CI runs, all of it
	bash .ci/run

bench: build ## ratios against references, measured side by side in one run
	$(GO) run -C bench . -weir $(CURDIR)/bin/weir

fuzz: ## every fuzz target for FUZZTIME (60s)
	tools/fuzz.sh $(FUZZTIME)

soak: ## the long forms: many kills, seeds and inputs, and ten runs in a row
	WEIR_SOAK=1 $(GO) test -count=1 -timeout=3h ./...
	$(GO) test -race -shuffle=on -count=10 -timeout=3h ./...

e2e: build ## the start page in a real Chromium
	tools/browser.sh
	cd e2e && npm ci --no-audit --no-fund --silent && E2E_WEIR=$(CURDIR)/bin/weir npm test

lint: ## go vet and the linters of .golangci.yml
	$(GO) vet ./...
	$(TOOL) golangci-lint run

vuln: ## known vulnerabilities that the product calls, without the network
	$(GO) run -C tools ./vulncheck

house: ## the import table and the other house rules
	$(GO) test -count=1 ./internal/house

generate: ## generated code and pages: gateway/api from openapi.yaml, docs/config.md from the settings
	$(GO) generate ./...

cover: ## coverage by package, and cover.html
	$(GO) test -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1
	$(GO) tool cover -html=cover.out -o cover.html

cross: ## builds for the other systems, thrown away
	for os in darwin windows; do for arch in amd64 arm64; do \
		echo "build $$os/$$arch" && CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(GO) build -o /dev/null ./cmd/weir || exit 1; done; done

docker: build ## the image weir:latest, from scratch around bin/weir
	docker build -t weir:latest .

clean: ## remove what the other targets made, but never data
	rm -rf bin dist .cache cover.out cover.html
