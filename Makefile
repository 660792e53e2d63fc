# What a developer types. CI runs .ci/run, which calls the same targets.

GOFUMPT     = go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE    = go run golang.org/x/tools/cmd/deadcode@v0.52.0
GOVULNCHECK = go run golang.org/x/vuln/cmd/govulncheck@v1.1.4
HELM        = go run helm.sh/helm/v3/cmd/helm@v3.22.0
GORELEASER  = go run github.com/goreleaser/goreleaser/v2@v2.15.4

# What only tests reach, and the check for dead code leaves out: apiserver/fake is the API server of the syncLoop's tests,
# faketest serves the embedded runtime in memory, testkit has what tests of several packages share, uploadtest is an
# object store, looptest has what the parts of the syncLoop share. Everything else must be reachable from a program.
TEST_ONLY   = checks/upload/uploadtest/|plegbench/syncloop/apiserver/fake/|plegbench/syncloop/looptest/|crictl/fake/faketest/|internal/testkit/

# The program that runs tests: "go test" or another that takes its arguments.
GOTEST ?= go test

# How many packages of end-to-end tests run at a time. Most of their time is waiting.
PACKAGES ?= 3

# The packages that have end-to-end tests. HOST has those that break what all packages share, SHIPPED those of
# the deb, the rpm and the image.
E2E     = $(shell grep -rl --include='*_test.go' '^//go:build e2e$$' . | xargs -n 1 dirname | sort -u)
HOST    = ./cmd/e2e/host
SHIPPED = ./cmd/e2e/packages

# Every target compiles with the same flags, so that each package is compiled once. grpcnotrace leaves out gRPC's trace
# pages: their html/template calls methods by name, so that the linker would have to keep every exported method of every
# dependency (7 MB).
export CGO_ENABLED = 0
export GOFLAGS += -trimpath -tags=grpcnotrace
E2ETAGS = e2e,grpcnotrace

.PHONY: all build test race check vulncheck generate bench e2e package chart stress fuzz goreleaser snapshot reproducible

all: build check test

# A static, stripped binary.
build:
	go build -ldflags '-s -w' -o bin/kdiag ./cmd/kdiag

# Everything that needs no node: no root, no C compiler, no program but Go.
test:
	$(GOTEST) -vet=off -timeout 30m $(TESTFLAGS) ./...

# The same with the race detector, which needs a C compiler, and in a random order.
race:
	CGO_ENABLED=1 $(GOTEST) -vet=off -race -shuffle=on -timeout 30m $(TESTFLAGS) ./...

# The tests that need root and a real runtime or node. docs/testing.md says what they install.
e2e: build
	KDIAG_BIN=$(CURDIR)/bin/kdiag $(GOTEST) -tags $(E2ETAGS) -vet=off -count=1 -p $(PACKAGES) -timeout 30m -run '^TestEndToEnd' \
	  $(TESTFLAGS) $(filter-out $(HOST) $(SHIPPED),$(E2E))
	KDIAG_BIN=$(CURDIR)/bin/kdiag $(GOTEST) -tags $(E2ETAGS) -vet=off -count=1 -timeout 30m -run '^TestEndToEnd' $(TESTFLAGS) $(HOST)

# What is shipped: the deb, the rpm and the image in a whole node, a release that nobody publishes, and whether two builds
# are the same bytes.
package: build chart snapshot reproducible
	KDIAG_BIN=$(CURDIR)/bin/kdiag $(GOTEST) -tags $(E2ETAGS) -vet=off -count=1 -timeout 30m -run '^TestEndToEnd' $(TESTFLAGS) $(SHIPPED)

# What Helm itself says of the chart, which TestChart compares with the manifests.
CHART = deploy/helm/kdiag
chart:
	$(HELM) lint --strict $(CHART)
	$(HELM) template kdiag $(CHART) --namespace kdiag --kube-version 1.34 \
	  --set ownNode=true,podMonitor.enabled=true,prometheusRule.enabled=true,networkPolicy.enabled=true >/dev/null

# The tests of packages RUNS times, in random order, on one to four processors, beside LOAD busy processes:
# make stress PACKAGE=./journal/..., or make stress PACKAGE=./cmd/e2e/gc TAGS=e2e RUNS=5.
RUNS ?= 50
LOAD ?= 4
stress: build
	@load= all=0; trap 'kill $$load' EXIT; for i in $$(seq $(LOAD)); do sh -c 'while :; do :; done' & load="$$load $$!"; done; \
	for p in $$(go list -tags 'grpcnotrace,$(TAGS)' $(PACKAGE)); do \
	  rm -f bin/stress.test; go test -tags 'grpcnotrace,$(TAGS)' -vet=off -c -o bin/stress.test $$p || exit; [ -e bin/stress.test ] || continue; \
	  failed=0; for i in $$(seq $(RUNS)); do \
	    (cd $$(go list -tags 'grpcnotrace,$(TAGS)' -f '{{.Dir}}' $$p) && GOMAXPROCS=$$((i % 4 + 1)) KDIAG_BIN=$(CURDIR)/bin/kdiag \
	      $(CURDIR)/bin/stress.test -test.shuffle=on -test.timeout=30m $(if $(TAGS),-test.run=^TestEndToEnd)) >bin/stress.log 2>&1 || \
	    { failed=$$((failed + 1)); grep -avE '^(PASS|=== )' bin/stress.log | head -n 60; }; \
	  done; echo "$$p: $(RUNS) runs, $$failed failed"; all=$$((all + failed)); \
	done; [ $$all -eq 0 ]

# Everything that must hold before a commit, short of the tests.
check:
	@out=$$($(GOFUMPT) -l .); if [ -n "$$out" ]; then echo "not gofumpt'ed:" $$out; exit 1; fi
	go vet -tags $(E2ETAGS) ./...
	$(STATICCHECK) -tags $(E2ETAGS) ./...
	@out=$$($(DEADCODE) ./...) || exit 1; out=$$(echo "$$out" | grep -vE '^($(TEST_ONLY))'); \
	 if [ -n "$$out" ]; then echo "dead code:"; echo "$$out"; exit 1; fi
	@$(MAKE) --no-print-directory vulncheck
	go mod tidy -diff
	@before=$$(git status --porcelain docs); $(MAKE) --no-print-directory generate; \
	 after=$$(git status --porcelain docs); [ "$$before" = "$$after" ] || { echo "generated files were stale:"; git status --porcelain docs; exit 1; }

# Known vulnerabilities in what we call. Without a way to the database this says that it did not look, and goes on: a
# machine without the internet must still be able to build and test.
vulncheck:
	@out=$$($(GOVULNCHECK) ./... 2>&1) && echo "$$out" || case "$$out" in \
	  *"fetching vulnerabilities"*) echo "NOT CHECKED for vulnerabilities: the database cannot be reached from here" ;; \
	  *) echo "$$out"; exit 1 ;; esac

# docs/reference, docs/man, docs/schema, docs/causes.md, docs/advisories.md out of the live commands and lists.
generate:
	go run ./cmd/gendocs/lists
	go run ./cmd/gendocs docs

# The systems that snapshot builds for. TARGETS=. is all of them; each compiles everything anew, for minutes.
TARGETS ?= linux_$(shell go env GOARCH)|darwin_arm64

# Whether goreleaser can be fetched and built.
goreleaser:
	@$(GORELEASER) --version >/dev/null

# A release in dist/ that nobody publishes, without SBOM, image and signature: what of .goreleaser.yaml needs no other program.
snapshot:
	$(GORELEASER) check
	@mkdir -p bin
	sed -E '/^ *- (linux|darwin)_/{/$(TARGETS)/!d}' .goreleaser.yaml >bin/goreleaser.yaml
	IMAGE=none $(GORELEASER) release --snapshot --clean --skip=sbom,docker,sign -f bin/goreleaser.yaml
	tar -xzf dist/kdiag_*_linux_$$(go env GOARCH).tar.gz -C dist kdiag && dist/kdiag version

# The last commit, cloned and built as for a release in two folders, must be the same bytes.
reproducible:
	@dir=$$(mktemp -d) && trap "rm -rf $$dir" EXIT && for clone in a longer/b; do \
	  git clone -q . $$dir/$$clone && (cd $$dir/$$clone && \
	    IMAGE=none $(GORELEASER) build --snapshot --single-target --skip=before -o $$dir/$$(basename $$clone).out) || exit 1; \
	done && sha256sum $$dir/*.out && cmp $$dir/*.out

# Figures, with their date, into docs/bench.
bench:
	./docs/bench/run

# Each fuzz target for a little while.
fuzz:
	@for p in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$p 2>/dev/null | grep '^Fuzz'); do \
	    echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $${FUZZTIME:-10s} $$p || exit 1; done; done
