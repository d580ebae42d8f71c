// Package tools names the program that `crates/tidegate/tests/acme.rs` builds, so that its version stands in go.mod.
//
//go:build tools

package tools

import _ "github.com/letsencrypt/pebble/v2/cmd/pebble"
