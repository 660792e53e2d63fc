//go:build e2e

package wholenode

import (
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

func TestMain(m *testing.M) { nodebox.Main(m) }
