package cli

import "errors"

// A UsageError is bad input: one line that says what is wrong, and a hint that says what to type instead.
type UsageError struct {
	Problem string
	Hint    string // a sentence or a command; empty when the problem says it all
}

func (e *UsageError) Error() string { return e.Problem }

// An ExitError ends the command with a code after it has said on its own what there was to say.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return "" }

// A HintError is an error of the work itself that comes with advice.
type HintError struct {
	Err  error
	Hint string
	Code int
}

func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap returns the error underneath.
func (e *HintError) Unwrap() error { return e.Err }

// ExitCode maps what a command returned to kdiag's exit code, a message and a hint for standard error. The message is
// empty when there is nothing left to say.
func ExitCode(err error) (code int, message, hint string) {
	if err == nil {
		return ExitHealthy, "", ""
	}
	var exit *ExitError
	if errors.As(err, &exit) {
		return exit.Code, "", ""
	}
	var usage *UsageError
	if errors.As(err, &usage) {
		return ExitUnknown, usage.Problem, usage.Hint
	}
	var hinted *HintError
	if errors.As(err, &hinted) {
		return hinted.Code, hinted.Error(), hinted.Hint
	}
	return ExitUnknown, err.Error(), ""
}
