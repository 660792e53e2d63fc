// Command kdiag says why a Kubernetes node is NotReady, and what to do next.
package main

import (
	"context"
	"os"

	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

func main() {
	os.Exit(app.Main(context.Background(), cli.System(), os.Args[1:]))
}
