# Two commands do everything: `make demo` and `make test`.

.PHONY: demo test build clean

# A cluster in a box: round robin and its rivals against Tidegate's own policy.
demo:
	@scripts/setup.sh build
	@cargo run --quiet --profile fast --locked --package tidegate -- demo $(ARGS)

# Format, lints, documentation and every test; ends with their count.
test:
	@scripts/setup.sh test
	cargo xtask test

# The binary that you put before real servers: target/release/tidegate
build:
	@scripts/setup.sh build
	cargo build --release --locked --package tidegate

clean:
	cargo clean
