package cli

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// DidYouMean returns a hint with the values that are like what was typed, after the words that come before each on the
// command line; empty when none is.
func DidYouMean(before, typed string, values []string) string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, v := range values {
		all.AddCommand(&cobra.Command{Use: v, Run: func(*cobra.Command, []string) {}})
	}
	like := all.SuggestionsFor(typed)
	if len(like) == 0 || typed == "" {
		return ""
	}
	return "did you mean " + before + strings.Join(like, ", "+before) + "?"
}

// amount matches a duration as people write it: a number, and perhaps a unit that Go does not know.
var amount = lazyregexp.New(`^([0-9]+) *(?:(s|m|h)(?:ec|in|r|our)?(?:ond|ute)?s?)?$`)

// ValueHint returns a hint with a value that a flag takes: of a duration what was meant (5s for 5), else its default.
func ValueHint(f *pflag.Flag, typed string) string {
	name := "--" + f.Name + " "
	parts := amount.FindStringSubmatch(typed)
	switch {
	case f.Value.Type() == "duration" && parts != nil && parts[2] != "" && parts[1]+parts[2] == typed:
		return "give at most " + name + "2562047h"
	case f.Value.Type() == "duration" && parts != nil:
		meant := parts[1] + cmp.Or(parts[2], "s")
		if _, err := time.ParseDuration(meant); err != nil { // too large
			return "give at most " + name + "2562047h"
		}
		return "did you mean " + name + meant + "?"
	case f.Value.Type() == "duration":
		return "give a duration, such as " + name + "5s or " + name + "2m"
	case f.DefValue == "" || f.DefValue == "[]":
		return ""
	}
	return "for example " + name + f.DefValue
}
