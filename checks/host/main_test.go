//go:build !e2e

package host

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	beChild()
	os.Exit(m.Run())
}
