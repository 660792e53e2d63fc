package cli

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// An Error ends the command with a message and advice.
type Error struct {
	Err  error
	Hint string // a sentence or a command; empty when the message is enough
	Code int
}

// Fail returns an *Error of the work itself.
func Fail(err error, code int, hint string) error { return &Error{err, hint, code} }

// Usage returns an *Error of bad input: one line with the problem, and what to type instead.
func Usage(problem, hint string) error { return &Error{errors.New(problem), hint, ExitUnknown} }

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error underneath.
func (e *Error) Unwrap() error { return e.Err }

// An ExitError ends the command with a code after it has printed all there was to print.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return "" }

// ExitCode maps what a command returned to kdiag's exit code, a message and a hint for standard error. The message is
// empty when there is nothing left to print.
func ExitCode(err error) (code int, message, hint string) {
	if err == nil {
		return ExitHealthy, "", ""
	}
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Code, "", ""
	}
	if hinted, ok := errors.AsType[*Error](err); ok {
		return hinted.Code, hinted.Error(), hinted.Hint
	}
	return ExitUnknown, err.Error(), ""
}

// Reject returns an error of bad input if the condition holds, and nil otherwise. cmp.Or picks the first of several.
func Reject(condition bool, problem, hint string) error {
	if !condition {
		return nil
	}
	return Usage(problem, hint)
}

// RejectEmpty returns an error of bad input for the first of the named flags that was given an empty value.
func RejectEmpty(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return Usage("--"+name+" is empty", "leave it out, or give it a value")
		}
	}
	return nil
}

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
