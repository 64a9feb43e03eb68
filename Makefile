# `make run` starts the hub, `make test` runs all tests. Both install missing dependencies first, and both are
# idempotent.

# rustup installs cargo outside the PATH of a fresh shell.
export PATH := $(HOME)/.cargo/bin:$(PATH)
SHELL := /bin/sh
.DELETE_ON_ERROR:
.PHONY: help run build dist bench-build static-libraries deps web test test-deps build-tests lint real-models faults test-rust test-web test-browser test-clients test-alerts test-export screenshots soak simulate check-features docs bench bench-peers fuzz deny sbom onnxruntime onnxruntime-gpu true-size silero hibari nats-server release test-release clean

help:
	@echo 'make run     install what is missing, build, start the hub (ARGS="--listen 127.0.0.1:9000" for more)'
	@echo 'make build   the web page and the programs: target/release/antiphon, target/release/antiphon-bench'
	@echo 'make dist    the same, optimized for handing on: target/dist/antiphon, target/dist/antiphon-bench'
	@echo 'make release packages, archives, checksums, licences: target/release-files (PROFILE=release: of what make run builds;'
	@echo '             MACHINES="x86_64 aarch64": programs of both, for glibc 2.31 and newer, needs root)'
	@echo 'make test-release   installs them in clean systems, talks, upgrades, removes (needs root)'
	@echo 'make test    install what tests need, run all of them'
	@echo 'make faults  clients, servers, disks and hubs that misbehave, beside a conversation that must not notice (ONLY=name for some);'
	@echo '             a short cut of it is part of make test'
	@echo 'make soak    the long suites: a thousand schedules of listeners for each speech language model (MODELS=folder for exported ones),'
	@echo '             half an hour of conversations whose workers are killed (MINUTES=30), and hubs that are stopped, killed and cut off'
	@echo 'make screenshots   the pictures of the README and the manual, the icons of the page'
	@echo 'make docs    the manual as a book: target/book/index.html'
	@echo 'make bench   measure, and print the numbers (PROFILE=dist: of what make dist builds)'
	@echo 'make simulate   sessions on virtual time, with faults drawn from seeds (ARGS="--seeds 100000")'
	@echo 'make check-features   each engine compiles alone'
	@echo 'make bench-peers   the same work by this hub and by a pipecat bot, side by side (needs the rig: RIG=folder)'
	@echo 'make fuzz    a minute of fuzzing for each reader of foreign bytes (FUZZ_SECONDS=600 for longer)'
	@echo 'make deny    licences, sources, duplicates and advisories of all dependencies, by cargo-deny (fetches its database)'
	@echo 'make onnxruntime   what neural voices and detectors run on, for the processor; onnxruntime-gpu: for NVIDIA GPUs'
	@echo 'make silero   the model that tells speech from noise (Silero VAD, 2 MB), which make run fetches too'
	@echo 'make hibari   a natural English voice (14 MB), which make run fetches too'
	@echo 'make nats-server   what the tests and benchmarks of the cluster run: target/nats-server/nats-server'
	@echo 'make true-size   voices of the published dimensions with random weights, which make bench measures (1.5 GB)'
	@echo 'make clean   remove what was built'

# What is built together: of another selection of packages our own crates would have other features, and be compiled once more.
PROGRAMS := --package antiphon --package antiphon-bench
# What a release is made of, where nothing else is named.
RELEASED := $(or $(PROFILE),dist)
# What the benchmarks measure: release, as `make run` builds it, or dist, as it is handed on.
PROFILE ?= release
# What is handed on runs on other machines: Whisper is compiled for any processor with AVX2, not for this one's, and libgomp and
# libstdc++ are in the programs. The folder has both as archives only, so that the linker takes these.
STATIC_LIBRARIES := $(CURDIR)/target/static-libraries
HANDED_ON := GGML_NATIVE=OFF ANTIPHON_STATIC_LIBRARIES='$(STATIC_LIBRARIES)' ANTIPHON_COMMIT="$$(git rev-parse HEAD)"

# All are optional: without them earshot detects speech, flite speaks, and the hub hears nobody.
run: deps web
	cargo build --release --locked $(PROGRAMS) --bin antiphon
	@$(MAKE) --no-print-directory onnxruntime || echo 'make: the hub starts without ONNX Runtime, and so without neural voices and detectors'
	@$(MAKE) --no-print-directory silero || echo 'make: the hub starts without Silero VAD: earshot detects speech, which hears music and voices in the background, too'
	@$(MAKE) --no-print-directory hibari || echo 'make: the hub starts without the voice hibari: flite speaks, or another voice that is in models'
	@.ci/whisper target/release/antiphon models/registry.toml models whisper-base || echo 'make: the hub starts without Whisper: it can be written to, and hears nobody; antiphon models pull whisper-base gets it later'
	exec target/release/antiphon serve $(ARGS)

build: deps web
	cargo build --release --locked $(PROGRAMS)

dist:
	@$(MAKE) --no-print-directory bench-build PROFILE=dist

bench-build: deps web static-libraries
	$(if $(filter dist,$(PROFILE)),$(HANDED_ON)) cargo build --profile $(PROFILE) --locked $(PROGRAMS)

static-libraries:
	@mkdir -p $(STATIC_LIBRARIES)
	@for name in libgomp.a libstdc++.a; do ln -sf "$$(cc -print-file-name=$$name)" $(STATIC_LIBRARIES)/; done

# Whose programs a release has: x86_64, aarch64. They are built in Debian 11; where none is named, this machine's are built on it.
MACHINES ?=
OTHER_MACHINES = $(filter-out $(shell uname -m),$(MACHINES))

release: deps web static-libraries
ifeq ($(MACHINES),)
	$(HANDED_ON) cargo build --profile $(RELEASED) --locked $(PROGRAMS)
else
	deploy/release/build-programs --profile $(RELEASED) $(MACHINES)
endif
	@$(MAKE) --no-print-directory onnxruntime silero hibari sbom
	@for machine in $(OTHER_MACHINES); do \
		.ci/onnxruntime cpu $(ONNXRUNTIME) models/onnxruntime-$$machine $$machine || exit 1; \
	done
	@.ci/whisper "$$(deploy/release/make-release --profile $(RELEASED) --print-program $(MACHINES))" models/registry.toml models whisper-base
	deploy/release/make-release --profile $(RELEASED) $(MACHINES)

test-release: release
	@.ci/deps release
	deploy/release/test-installed

deps:
	@.ci/deps build

# The ONNX Runtime version that the crate `ort` (Cargo.toml) targets.
ONNXRUNTIME := 1.31.1

onnxruntime:
	@.ci/onnxruntime cpu $(ONNXRUNTIME) models/onnxruntime

# The folder of `antiphon models pull silero-vad`, so that vad.engine = "auto" finds the model.
silero:
	@.ci/silero models/registry.toml models/silero-vad

# The folder of `antiphon models import` of the same package, so that tts.engine = "auto" finds the voice.
hibari:
	@.ci/hibari models/registry.toml models/hibari

# Nothing is installed; the hub itself does not need it.
nats-server:
	@.ci/nats-server

onnxruntime-gpu:
	@.ci/onnxruntime gpu $(ONNXRUNTIME) models/onnxruntime-gpu

# Voices of the published dimensions with random weights, for `make bench`: 390 MB, and 1.5 GB for Chatterbox Nano in two forms. The
# larger speech language models are written by hand, as docs/developing/benchmarks.md says.
SYNTHETIC := PYTHONPATH=models/export .venv-export/bin/python -m antiphon_export.synthetic

true-size: models/true-size/.made

models/true-size/.made: $(wildcard models/export/antiphon_export/synthetic/*.py) | .venv-export/.installed
	$(SYNTHETIC).true_size models/true-size
	$(SYNTHETIC).speech_lm models/true-size/chatterbox-nano chatterbox-nano
	$(SYNTHETIC).speech_lm models/true-size/chatterbox-nano-gqa chatterbox-nano --gqa
	ln -f models/true-size/chatterbox-nano/conditional_decoder.onnx_data models/true-size/chatterbox-nano-gqa/
	ln -f models/true-size/chatterbox-nano/embed_tokens.onnx_data models/true-size/chatterbox-nano-gqa/
	touch $@

bench: bench-build onnxruntime silero true-size
	target/$(PROFILE)/antiphon-bench $(ARGS)

# The peer uses the same mock engines. Its bot, client and question are not part of this repository.
RIG ?=
PEERS := .venv-peers/.installed

bench-peers: bench-build
	@[ -f $(RIG)/pipecat_bot.py ] || { echo 'make: the rig is not there: $(RIG); name its folder with RIG='; exit 1; }
	@$(MAKE) --no-print-directory $(PEERS)
	target/$(PROFILE)/antiphon-bench peers --rig $(RIG) --python .venv-peers/bin/python $(ARGS)

$(PEERS):
	python3 -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet 'pipecat-ai[silero,openai,websocket,whisper,piper]==1.14.0' uvicorn aiohttp psutil
	touch $@

# The web page. `npm ci` runs if the lock file changed, the build if a source file did.
WEB_SOURCES := $(shell find web -type d \( -name node_modules -o -name dist \) -prune -o -type f -print 2>/dev/null)

web: web/dist/index.html

web/node_modules/.installed: web/package-lock.json
	cd web && npm ci --no-audit --no-fund
	touch $@

web/dist/index.html: web/node_modules/.installed $(WEB_SOURCES)
	cd web && npm run build
	touch $@

web/node_modules/.installed: | deps
tests/browser/node_modules/.installed tests/clients/npm/node_modules/.installed .venv/.installed: | test-deps
.venv-export/.installed: | deps

# The tests: `.ci/test` has the order of its parts, which are targets below, and prints where the time went. The browser and SDK
# tests use target/debug/antiphon, which `build-tests` makes.
export ANTIPHON := $(CURDIR)/target/debug/antiphon
# How often a Rust test, a file of browser tests or a client program that failed runs once more; it then counts as flaky.
export RETRIES ?= 0

test:
	@.ci/test

test-deps: deps
	@.ci/deps test
	@$(MAKE) --no-print-directory onnxruntime silero hibari nats-server
	@.ci/deploy-tools
	@cargo nextest --version >/dev/null 2>&1 || cargo install --locked cargo-nextest

lint: check-files
	cargo clippy --locked --workspace --all-targets -- -D warnings

# What is checked without compiling.
check-files: test-deps web
	.ci/check-links
	cargo fmt --all --check
	.ci/licences
	.ci/check-deploy --self-test
	.ci/check-deploy

# What writes graphs, as far as it needs no PyTorch and none of the makers' code: models/export/README.md has the rest.
.venv-export/.installed: models/export/requirements-test.txt
	python3 -m venv .venv-export
	.venv-export/bin/python -m pip install --quiet --requirement models/export/requirements-test.txt
	touch $@

test-export: .venv-export/.installed
	cd models/export && ../../.venv-export/bin/python -m unittest tests.test_cli tests.test_transformer

# Long suites, each with a short form in `make test`. MODELS names a folder of exported models (qwen3-tts, cosyvoice3, s1-mini,
# moss-tts-nano), whose language models are then run in the same schedules in their true size.
MODELS ?=
SCHEDULES ?= 1000
# How long workers of a cluster are killed under conversations.
MINUTES ?= 30

soak: test-deps web
	ANTIPHON_SCHEDULES=$(SCHEDULES) cargo nextest run --locked --package antiphon-engines --profile soak \
		-E 'test(/changes_no_other/)'
	@[ -z '$(MODELS)' ] || ANTIPHON_SCHEDULES=20 ANTIPHON_MODELS='$(abspath $(MODELS))' cargo nextest run --release --locked \
		--package antiphon-engines --profile soak --no-capture --run-ignored only -E 'test(/in_true_size/)'
	cargo build --release --locked $(PROGRAMS)
	target/release/antiphon-bench cluster --part kill --part rolling --minutes $(MINUTES) --strict
	target/release/antiphon-bench cluster --hubs 3 --part handover --part rolling-all --part kill-hub --part partition --part jobs --strict

# With the packages of `make build`, so that what it built is used.
simulate: deps
	cargo run --release --locked $(PROGRAMS) --package antiphon-simulation --bin antiphon-simulate -- $(ARGS)

# Every fault, one area after the other; the table at the end has a row for each: the canary's longest wait beside it and before
# it, the hub's growth, what the fault held and when that was given back. ONLY names an area, or a part of faults' names.
ONLY ?= all

faults: test-deps web
	@rm -rf target/tmp/faults
	@ANTIPHON_FAULTS='$(ONLY)' cargo nextest run --locked --package antiphon --test faults --profile faults; status=$$?; \
		echo '| area | fault | canary | growth | held | took |'; echo '| --- | --- | --- | --- | --- | --- |'; \
		cat target/tmp/faults/*.md; exit $$status

# Each engine compiles alone, without a warning, and so does the crate without any.
FEATURES := $(shell sed -n 's/^default = \[\(.*\)\]$$/\1/p' crates/engines/Cargo.toml | tr -d '",')

check-features:
	cargo clippy --locked --package antiphon-engines --no-default-features -- -D warnings
	@for feature in $(FEATURES); do \
		echo "cargo clippy --package antiphon-engines --no-default-features --features $$feature"; \
		cargo clippy --locked --package antiphon-engines --no-default-features --features $$feature -- -D warnings || exit 1; \
	done
	cargo clippy --locked --package antiphon --no-default-features --features flite -- -D warnings

# The whole workspace: of another selection of packages cargo would compile a third anew, since its features are others. Clippy's
# compiler makes it, which lints on the way: `cargo clippy` would analyse everything a second time.
LINTING := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings

build-tests: test-deps web
	$(LINTING) cargo nextest run --locked --workspace --no-run

# What the tests with real weights need beside the voice hibari, apart from the models of the hub.
real-models: build-tests
	@.ci/whisper target/debug/antiphon models/registry.toml target/models whisper-base
	@.ci/whisper target/debug/antiphon models/registry.toml target/models whisper-tiny.en

test-rust: real-models
	$(LINTING) cargo nextest run --locked --workspace --retries $(RETRIES)

test-web: web
	cd web && npm run check
	cd web && npm test

tests/browser/node_modules/.installed: tests/browser/package-lock.json
	cd tests/browser && npm ci --no-audit --no-fund
	touch $@

test-browser: real-models tests/browser/node_modules/.installed
	npm --prefix tests/browser test

# The pictures of the README and the manual, of real conversations; the icons and the social card of the page.
screenshots: real-models web tests/browser/node_modules/.installed
	@.ci/deps screenshots
	node tests/browser/icons.mjs
	.ci/with-hub node tests/browser/screenshots.mjs
	UPDATE_SCREENSHOTS=1 .ci/with-hub node --test tests/browser/screenshot.test.mjs

.venv/.installed: tests/clients/requirements.txt
	python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --requirement tests/clients/requirements.txt
	touch $@

tests/clients/npm/node_modules/.installed: tests/clients/npm/package-lock.json
	cd tests/clients/npm && npm ci --no-audit --no-fund
	touch $@

examples/agents/typescript/node_modules/.installed: examples/agents/typescript/package-lock.json | test-deps
	cd examples/agents/typescript && npm ci --no-audit --no-fund
	touch $@

test-clients: real-models .venv/.installed tests/clients/npm/node_modules/.installed examples/agents/typescript/node_modules/.installed
	.venv/bin/python tests/clients/run.py

# Checks the alert rules against synthetic metrics with promtool.
test-alerts: test-deps
	.ci/promtool check config configs/prometheus/prometheus.yml
	.ci/promtool test rules configs/prometheus/alerts_test.yml

# The manual. Its pages are read without it, too.
MDBOOK := 0.5.4

docs:
	@mdbook --version >/dev/null 2>&1 || cargo install --locked mdbook@$(MDBOOK)
	mdbook build docs

deny: deps
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny --workspace check

# The bill of materials of each program, as CycloneDX JSON: target/sbom/.
CARGO_CYCLONEDX := 0.5.9

sbom:
	@cargo cyclonedx --version >/dev/null 2>&1 || cargo install --locked cargo-cyclonedx@$(CARGO_CYCLONEDX)
	.ci/sbom

# Fuzzing on the stable compiler: RUSTC_BOOTSTRAP enables the sanitizer. The corpus is kept in fuzz/corpus, findings in
# fuzz/artifacts; each finding becomes a named test. The session target disables leak detection, because the metrics
# library frees its memory late. The build keeps all checks and trades some optimization for build time.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= client_message session frame cluster opus sse wav sound offer datagrams rtvi wyoming telephony sip

fuzz: export CARGO_PROFILE_RELEASE_LTO := off
fuzz: export CARGO_PROFILE_RELEASE_OPT_LEVEL := 2
fuzz: export CARGO_PROFILE_RELEASE_CODEGEN_UNITS := 16
fuzz: export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS := true
fuzz: export CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS := true
fuzz: deps
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz@0.13.2
	@for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/corpus/$$target; \
		leaks=1; [ $$target != session ] || leaks=0; \
		ASAN_OPTIONS=detect_leaks=$$leaks RUSTC_BOOTSTRAP=1 cargo fuzz run --target-dir fuzz/target $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -timeout=30 -max_len=4096 -verbosity=0 -print_final_stats=1 || exit 1; \
	done

clean:
	cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts
	rm -rf web/dist web/node_modules tests/browser/node_modules tests/clients/npm/node_modules .venv .venv-peers .venv-export
