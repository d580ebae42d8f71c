# Two commands do everything: `make demo` and `make test`.

.PHONY: demo test lab build deb container clean

# A cluster in a box: round robin and other policies against Tidegate's own policy.
demo:
	@scripts/setup.sh build
	@cargo run --quiet --profile fast --locked --package tidegate -- demo $(ARGS)

# Format, lints, documentation and every test; ends with their count.
test:
	@scripts/setup.sh test
	cargo xtask test

# The lab: the experiments behind every claim. See docs/lab.md.
lab:
	@scripts/setup.sh lab
	cargo build --release --locked --package tidegate --package tidegate-lab
	@target/release/tidegate-lab list
	@echo
	@echo "run one:    target/release/tidegate-lab run single-site --quick   (as root: namespaces and CPU quotas)"
	@echo "run all:    target/release/tidegate-lab run all --quick && target/release/tidegate-lab report"

# The binary that you put before real servers: target/release/tidegate, its debug information beside it
build:
	@scripts/setup.sh build
	@scripts/build.sh

# A Debian package of it, in target/deb. See docs/install.md.
deb: build
	@scripts/deb.sh target/release/tidegate

# A container image of it, by buildah, podman or docker.
container: build
	@scripts/container.sh target/release/tidegate target/container tidegate

clean:
	cargo clean
