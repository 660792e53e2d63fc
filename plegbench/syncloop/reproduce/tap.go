package reproduce

import "github.com/go-logr/logr"

// A tap passes the lines of a log on, and calls line for each.
type tap struct {
	logr.LogSink
	line func(err error, msg string, kv []any)
}

var _ logr.CallDepthLogSink = (*tap)(nil)

// newTap returns a logger that writes to log. line is called by the goroutine that logs, and must not log itself.
func newTap(log logr.Logger, line func(err error, msg string, kv []any)) logr.Logger {
	return logr.New(&tap{log.GetSink(), line})
}

// Init counts the tap's own frame, so that the header still names the caller.
func (t *tap) Init(info logr.RuntimeInfo) {
	info.CallDepth++
	t.LogSink.Init(info)
}

// Info takes a line without an error.
func (t *tap) Info(level int, msg string, kv ...any) {
	t.line(nil, msg, kv)
	t.LogSink.Info(level, msg, kv...)
}

// Error takes a line of an error, which may be nil.
func (t *tap) Error(err error, msg string, kv ...any) {
	t.line(err, msg, kv)
	t.LogSink.Error(err, msg, kv...)
}

// WithValues returns a sink that is tapped as well.
func (t *tap) WithValues(kv ...any) logr.LogSink { return &tap{t.LogSink.WithValues(kv...), t.line} }

// WithName returns a sink that is tapped as well.
func (t *tap) WithName(name string) logr.LogSink { return &tap{t.LogSink.WithName(name), t.line} }

// WithCallDepth returns a sink that is tapped as well.
func (t *tap) WithCallDepth(depth int) logr.LogSink {
	if inner, ok := t.LogSink.(logr.CallDepthLogSink); ok {
		return &tap{inner.WithCallDepth(depth), t.line}
	}
	return t
}
