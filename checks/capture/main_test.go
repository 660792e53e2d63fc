//go:build !e2e

package capture

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	beDaemon()
	os.Exit(m.Run())
}
