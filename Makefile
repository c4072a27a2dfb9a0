# What needs more than a line is a script or a Go test; this file names the ways in.

GO ?= go

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## one static binary: bin/hooklatch
	@[ -e bin/hooklatch ] || echo 'building bin/hooklatch: the first time takes about a minute'
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o bin/hooklatch ./cmd/hooklatch

# The race detector wants a C compiler.
RACE := $(shell [ "$$($(GO) env CGO_ENABLED)" = 1 ] && echo -race)

.PHONY: test
test: postgres ## what a change must pass: gofmt, vet, every test
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "run gofmt -w on:" $$unformatted >&2; exit 1; }
	@$(GO) vet ./...
	@$(GO) test $(RACE) -timeout 30m ./... # a busy machine of two cores needs up to ten for one package
	@[ -z "$(RACE)" ] || $(GO) test -run 'P11|AllocatesLittle' ./verify ./cmd/hooklatch # what the race detector would distort

.PHONY: run
run: build postgres ## the program with a source, an app and a live view; ARGS="--scheme stripe" adds flags
	@exec bin/hooklatch dev $(ARGS)

# Where packages put the binaries, as in inbox/devdb.
POSTGRES = /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres /usr/lib/postgresql*/bin/postgres \
	/usr/libexec/postgresql*/postgres /opt/homebrew/opt/postgresql*/bin/postgres /usr/local/opt/postgresql*/bin/postgres \
	/opt/local/lib/postgresql*/bin/postgres /Applications/Postgres.app/Contents/Versions/*/bin/postgres /usr/local/pgsql/bin/postgres

.PHONY: postgres
postgres: ## install the binaries of Postgres, unless they are there or DATABASE_URL is set
	@if [ -n "$$DATABASE_URL" ] || command -v postgres >/dev/null || ls $(POSTGRES) 2>/dev/null | grep -q .; then exit 0; fi; \
	if command -v brew >/dev/null; then line='brew install postgresql@17'; \
	elif command -v apt-get >/dev/null; then line='apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends postgresql'; \
	elif command -v dnf >/dev/null; then line='dnf install -y postgresql-server'; \
	elif command -v apk >/dev/null; then line='apk add postgresql'; \
	elif command -v zypper >/dev/null; then line='zypper --non-interactive install postgresql-server'; \
	elif command -v pacman >/dev/null; then line='pacman -S --noconfirm postgresql'; \
	else echo 'No Postgres binaries on this machine: install Postgres 14 or newer, or set DATABASE_URL.' >&2; exit 1; fi; \
	case "$$line" in brew*) as='sh -c';; *) \
		if [ "$$(id -u)" = 0 ]; then as='sh -c'; \
		elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as='sudo -n sh -c'; \
		else echo "No Postgres binaries on this machine. Run:  sudo sh -c '$$line'" >&2; exit 1; fi;; \
	esac; \
	echo "No Postgres binaries on this machine. Running: $$line"; \
	$$as "$$line"

.PHONY: bench
bench: postgres ## accepted requests per second beside references; ARGS="-connections 64 -body 65536"
	@$(GO) run ./cmd/bench $(ARGS)

.PHONY: bench-retention
bench-retention: postgres ## two ways to keep bodies until they are old; ARGS="-rows 10000000", which takes 10 GB
	@$(GO) run ./cmd/bench retention $(ARGS)

.PHONY: octokit
octokit: postgres ## send 329 real GitHub events through serve; skipped without npm
	@if ! command -v npm >/dev/null; then echo 'skipped: npm is not installed, and the events come from an npm package'; exit 0; fi; \
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$$dir" @octokit/webhooks-examples@7.6.1 && \
	OCTOKIT_EXAMPLES="$$dir/node_modules/@octokit/webhooks-examples/api.github.com/index.json" \
		$(GO) test ./cmd/hooklatch -count=1 -run TestOctokitPayloads -v

.PHONY: interop
interop: ## sign and verify against npm libraries of others, both ways; skipped without npm
	@if ! command -v npm >/dev/null; then echo 'skipped: npm is not installed, and the libraries come from it'; exit 0; fi; \
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$$dir" \
		@octokit/webhooks-methods@6.0.0 standardwebhooks@1.1.1 stripe@23.1.0 && \
	INTEROP_NPM="$$dir" $(GO) test ./cmd/hooklatch -count=1 -run TestNpmLibraries -v
