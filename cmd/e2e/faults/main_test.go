//go:build e2e

// Package faults breaks private containerds, and what is around them, in one way after the other.
package faults

import (
	"os"
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

type (
	fault = e2etest.Fault
	place = e2etest.Place
)

// TestMain becomes the process that waitInKernel, lockMap, plugins or watch starts, where the environment has it.
func TestMain(m *testing.M) {
	if os.Getenv(vforkEnv) != "" {
		vfork()
	}
	if name := os.Getenv(mapEnv); name != "" {
		holdMap(name)
	}
	if paths := os.Getenv(listenEnv); paths != "" {
		servePlugins(paths)
	}
	if path := os.Getenv(watchEnv); path != "" {
		watch(path)
	}
	nodebox.Main(m)
}
