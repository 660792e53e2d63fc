package cli

import "log/slog"

// Log returns kdiag's own log: at debug level to standard error with --verbose, else nowhere.
func Log(env Env, verbose int) *slog.Logger {
	if verbose == 0 {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
