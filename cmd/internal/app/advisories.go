package app

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
)

// mostAdvisories bounds a file of known bugs, in bytes: a hundred times the one of the program.
const mostAdvisories = 4 << 20

// addAdvisories reads the known bugs that --advisories names, for the commands that have it. Without it, a file that
// was installed beside the program counts if its newest row is newer; one that cannot be read is a warning, since
// nobody asked for it.
func addAdvisories(cmd *cobra.Command, installed string) error {
	flag := cmd.Flags().Lookup("advisories")
	if flag == nil {
		return nil
	}
	if !flag.Changed {
		rows, err := readAdvisories(installed)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), render.Printable("kdiag: "+err.Error()+": not used"))
		case advisories.Date(rows) > advisories.Date(advisories.All()):
			advisories.Add(rows)
		}
		return nil
	}
	rows, err := readAdvisories(flag.Value.String())
	if err != nil {
		return cli.Usage("--advisories: "+err.Error(), "kdiag explain advisories -o yaml shows the form of the rows")
	}
	advisories.Add(rows)
	return nil
}

func readAdvisories(name string) ([]advisories.Advisory, error) {
	text, err := cli.ReadFile(name, mostAdvisories)
	if err != nil {
		return nil, err
	}
	rows, err := advisories.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(name, `""`), err)
	}
	return rows, nil
}
