package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CommandLine writes a command that a person may run next: its name, and those of the flags given to cmd that are among
// the names, as they were given. A command that is printed means the same runtime and the same pods that way.
func CommandLine(cmd *cobra.Command, name string, flags ...string) string {
	line := "kdiag " + name
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(flags, f.Name) {
			return
		}
		line += " --" + f.Name
		switch value := f.Value.String(); f.Value.Type() {
		case "bool":
			if value != "true" {
				line += "=" + value
			}
		case "stringToString": // prints itself as [key=value,...]
			line += " " + Quote(strings.TrimSuffix(strings.TrimPrefix(value, "["), "]"))
		default:
			line += " " + Quote(value)
		}
	})
	return line
}

// RuntimeFlags are the flags that name the runtime.
func RuntimeFlags() []string { return []string{"runtime-endpoint", "simulate", "host-root"} }

// Quote writes a word so that a shell reads it back as it is.
func Quote(word string) string {
	if plain := regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`); plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
