package cli

import (
	"io"
	"log/slog"
)

// Log returns kdiag's own log: at debug level to standard error with --verbose, to env.Log where that is kept, else
// nowhere.
func Log(env Env, verbose int) *slog.Logger {
	var to []io.Writer
	if verbose > 0 {
		to = append(to, env.Err)
	}
	if env.Log != nil {
		to = append(to, env.Log)
	}
	if len(to) == 0 {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(io.MultiWriter(to...), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
