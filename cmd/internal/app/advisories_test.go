package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// TestInstalledAdvisories has the file that is read without --advisories. None of these may be added, since that is for
// the whole process; the script advisories has files that are.
func TestInstalledAdvisories(t *testing.T) {
	const row = "- {id: x-1, component: runc, title: t, affected: [<1], causes: [A], symptom: s, fix: f, checked: 2020-01-02}"
	for _, c := range []struct{ text, warning string }{
		{"", ""}, // none
		{row, ""},
		{"- {id: x, colour: red}", "unknown field"},
		{"- {id: x-1}", "x-1 is not complete: not used"},
	} {
		name := filepath.Join(t.TempDir(), "advisories.yaml")
		if c.text != "" {
			if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var warnings strings.Builder
		cmd := &cobra.Command{}
		cmd.SetErr(&warnings)
		cli.AddAdvisories(cmd)
		err := addAdvisories(cmd, name)
		if _, added := advisories.Lookup("x-1"); err != nil || added || c.warning == "" && warnings.Len() > 0 ||
			!strings.Contains(warnings.String(), c.warning) {
			t.Errorf("%s: %v, %v, %s", c.text, err, added, &warnings)
		}
	}
}
