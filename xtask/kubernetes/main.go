// Kubernetes' own API server, unchanged: what the tests of discovery ask. `cargo xtask kubernetes` builds it.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
