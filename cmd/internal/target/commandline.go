package target

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
		if slices.Contains(flags, f.Name) {
			line += " " + asGiven(f)
		}
	})
	return line
}

// RuntimeFlags are the flags that say which runtime is meant.
func RuntimeFlags() []string { return []string{"runtime-endpoint", "simulate"} }

// SourceFlags are those of Sources.
func SourceFlags() []string { return []string{"kubelet-root", "manifests", "pods"} }

func asGiven(f *pflag.Flag) string {
	value := f.Value.String()
	switch f.Value.Type() {
	case "bool":
		if value == "true" {
			return "--" + f.Name
		}
		return "--" + f.Name + "=" + value
	case "stringToString": // prints itself as [key=value,...]
		value = strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
	}
	return "--" + f.Name + " " + Quote(value)
}

// Quote writes a word so that a shell reads it back as it is.
func Quote(word string) string {
	if plain := regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`); plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
