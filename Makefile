# What a developer types. CI runs .ci/run, which calls the same targets.

GOFUMPT     = go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE    = go run golang.org/x/tools/cmd/deadcode@v0.52.0
GOVULNCHECK = go run golang.org/x/vuln/cmd/govulncheck@v1.1.4
GORELEASER  = CGO_ENABLED=0 go run github.com/goreleaser/goreleaser/v2@v2.15.4

# How many packages are tested at a time. The end-to-end tests break real nodes; on one machine those of another package
# see some of that (load, records of the kernel), so more packages are quicker and less reliable.
PACKAGES ?= 2

# What only tests reach, and the check for dead code leaves out: nodebox makes real nodes for end-to-end tests and
# docs/bench, apiserver/fake is the API server of the syncLoop's tests, faketest serves the embedded runtime in memory,
# apptest runs kdiag's commands. Everything else must be reachable from a program.
TEST_ONLY   = cmd/e2e/nodebox/|plegbench/syncloop/apiserver/fake/|crictl/fake/faketest/|cmd/internal/apptest/

.PHONY: all build test check vulncheck generate bench e2e fuzz goreleaser snapshot reproducible

all: build check test

# A static, stripped binary. grpcnotrace leaves out gRPC's trace pages: their html/template calls methods by name, so
# that the linker would have to keep every exported method of every dependency (7 MB).
build:
	CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags '-s -w' -o bin/kdiag ./cmd/kdiag

test:
	go test -p $(PACKAGES) -race -shuffle=on -timeout 30m $(TESTFLAGS) ./...

# Everything that must hold before a commit, short of the tests.
check:
	@out=$$($(GOFUMPT) -l .); if [ -n "$$out" ]; then echo "not gofumpt'ed:" $$out; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...
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

# A release in dist/ that nobody publishes, without SBOM and image: what of .goreleaser.yaml needs no other program.
snapshot:
	$(GORELEASER) check
	@mkdir -p bin
	sed -E '/^ *- (linux|darwin)_/{/$(TARGETS)/!d}' .goreleaser.yaml >bin/goreleaser.yaml
	IMAGE=none $(GORELEASER) release --snapshot --clean --skip=sbom,docker -f bin/goreleaser.yaml
	tar -xzf dist/kdiag_*_linux_$$(go env GOARCH).tar.gz -C dist kdiag && dist/kdiag version

# The last commit, cloned and built as for a release in two folders, must be the same bytes.
reproducible:
	@dir=$$(mktemp -d) && trap "rm -rf $$dir" EXIT && for clone in a longer/b; do \
	  git clone -q . $$dir/$$clone && (cd $$dir/$$clone && \
	    IMAGE=none $(GORELEASER) build --snapshot --single-target --skip=before -o $$dir/$$(basename $$clone).out) || exit 1; \
	done && sha256sum $$dir/*.out && cmp $$dir/*.out

# The tests that need root and a real containerd; the node box too. docs/testing.md says what they install.
e2e:
	KDIAG_E2E=1 go test -count=1 -timeout 30m -run 'TestNode|TestEndToEnd' ./...

# Figures, with their date, into docs/bench.
bench:
	./docs/bench/run

# Each fuzz target for a little while.
fuzz:
	@for p in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$p 2>/dev/null | grep '^Fuzz'); do \
	    echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $${FUZZTIME:-10s} $$p || exit 1; done; done
