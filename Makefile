# Everything a person or a CI job does with this tree. `make test` and `make demo` start from a Debian machine that
# has Go and make only. Long recipes live in scripts/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:

# The toolchain that closes the standard library's known holes; Go 1.21 and later fetch it by themselves.
export GOTOOLCHAIN := go1.27.3

# Build tags of our own. Lint compiles the tree with them; a tag that is missing here fails integration/house.
TAGS := soak,walltest,seccompgen,testclients

# Variables that the linker sets. scripts/build fills in the values.
export VERSION_VAR     := coworker/cmd/coworker/cli.Version
export CELL_DIGEST_VAR := coworker/runtime/session.CellDigest
export PROXY_DIGEST_VAR := coworker/runtime/session.ProxyDigest
export BOX_DIGEST_VAR := coworker/runtime/session.BoxDigest
export WALLSD_DIGEST_VAR := coworker/runtime/session.WallsdDigest
export WALLSD_VERSION_VAR := main.build

PKGS    := ./...
GATE    := go run ./integration/house/cmd/testgate --
TIMEOUT := 20m

.PHONY: build box demo test test-clients bench soak generate generate-check linked lint cross check deps clean

build:
	scripts/build bin

# Like build, with the helper of the backend container: needs a C compiler.
box:
	scripts/deps box
	scripts/build bin box

demo: build
	scripts/deps demo
	bin/coworker demo

deps:
	scripts/deps test
	scripts/test-user

# Packages under integration start cells, kernels and compilers of their own: one at a time. The rest share 2 cores.
# Never from the test cache: it does not know the kernel, the users or the installed programs.
test: deps box
	go vet $(PKGS)
	units=$$(go list $(PKGS) | grep -v '^coworker/integration/'); \
	$(GATE) go test -count=1 -p 2 -timeout $(TIMEOUT) $$units -- go test -count=1 -p 1 -timeout $(TIMEOUT) ./integration/...

# Clients whose packages are large: Java, psql, cargo.
test-clients: build
	scripts/deps test
	scripts/deps test-clients
	scripts/test-user
	$(GATE) go test -count=1 -tags testclients -timeout $(TIMEOUT) ./integration/clients/

bench: box
	scripts/deps bench
	go test -p 1 -run '^$$' -bench . -timeout 60m $(PKGS)

soak: box
	scripts/deps test
	scripts/test-user
	$(GATE) go test -count=1 -tags soak -p 1 -run Soak -timeout 6h ./integration/...

generate:
	scripts/deps generate
	go generate $(PKGS)

generate-check:
	scripts/deps generate
	scripts/generate-check

# Writes down what each small binary links, see TestLinkedPackages in integration/house.
linked:
	for dir in cmd/*/; do \
		name=$$(basename $$dir); \
		[ $$name = coworker ] && continue; \
		cgo=0 tags=; \
		[ $$name != coworker-box ] || { cgo=1 tags=netgo,osusergo,runc_nocriu; }; \
		GOOS=linux GOARCH=amd64 CGO_ENABLED=$$cgo go list -deps -tags "$$tags" -f '{{if not .Standard}}{{.ImportPath}}{{end}}' ./cmd/$$name | LC_ALL=C sort > cmd/$$name/packages.txt; \
	done

lint:
	scripts/deps generate
	scripts/lint $(TAGS)

cross:
	scripts/cross

check: lint cross generate-check test

clean:
	rm -rf bin
