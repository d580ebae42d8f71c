//go:build tools

// Package tools names the program that is built here, so that its version is kept.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
