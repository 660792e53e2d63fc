package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// A UsageError is bad input: one line with the problem, and a hint what to type instead.
type UsageError struct {
	Problem string
	Hint    string // a sentence or a command; empty when the problem is enough
}

// Usage returns a *UsageError.
func Usage(problem, hint string) error { return &UsageError{problem, hint} }

func (e *UsageError) Error() string { return e.Problem }

// An ExitError ends the command with a code after it has printed all there was to print.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return "" }

// A HintError is an error of the work itself that comes with advice.
type HintError struct {
	Err  error
	Hint string
	Code int
}

// Fail returns a *HintError.
func Fail(err error, code int, hint string) error { return &HintError{err, hint, code} }

func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap returns the error underneath.
func (e *HintError) Unwrap() error { return e.Err }

// ExitCode maps what a command returned to kdiag's exit code, a message and a hint for standard error. The message is
// empty when there is nothing left to print.
func ExitCode(err error) (code int, message, hint string) {
	if err == nil {
		return ExitHealthy, "", ""
	}
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Code, "", ""
	}
	if usage, ok := errors.AsType[*UsageError](err); ok {
		return ExitUnknown, usage.Problem, usage.Hint
	}
	if hinted, ok := errors.AsType[*HintError](err); ok {
		return hinted.Code, hinted.Error(), hinted.Hint
	}
	return ExitUnknown, err.Error(), ""
}

// Reject returns a *UsageError if the condition holds, and nil otherwise. cmp.Or picks the first of several.
func Reject(condition bool, problem, hint string) error {
	if !condition {
		return nil
	}
	return &UsageError{Problem: problem, Hint: hint}
}

// RejectEmpty returns a *UsageError for the first of the named flags that was given an empty value.
func RejectEmpty(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return &UsageError{Problem: "--" + name + " is empty", Hint: "leave it out, or give it a value"}
		}
	}
	return nil
}
