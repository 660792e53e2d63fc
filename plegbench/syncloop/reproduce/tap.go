package reproduce

import "github.com/go-logr/logr"

// A tap hands the lines of a log on and shows them to somebody on the way: the kubelet's own words at the moment when it says them.
type tap struct {
	logr.LogSink
	tell func(err error, msg string, kv []any)
}

var _ logr.CallDepthLogSink = (*tap)(nil)

// newTap returns a logger that writes to log. tell is called by whichever goroutine logs and must not log itself.
func newTap(log logr.Logger, tell func(err error, msg string, kv []any)) logr.Logger {
	return logr.New(&tap{log.GetSink(), tell})
}

// Init counts the tap's own frame, so that the header still names who logged.
func (t *tap) Init(info logr.RuntimeInfo) {
	info.CallDepth++
	t.LogSink.Init(info)
}

// Info takes a line without an error.
func (t *tap) Info(level int, msg string, kv ...any) {
	t.tell(nil, msg, kv)
	t.LogSink.Info(level, msg, kv...)
}

// Error takes a line of an error, which may be nil.
func (t *tap) Error(err error, msg string, kv ...any) {
	t.tell(err, msg, kv)
	t.LogSink.Error(err, msg, kv...)
}

// WithValues returns a sink that is tapped as well.
func (t *tap) WithValues(kv ...any) logr.LogSink { return &tap{t.LogSink.WithValues(kv...), t.tell} }

// WithName returns a sink that is tapped as well.
func (t *tap) WithName(name string) logr.LogSink { return &tap{t.LogSink.WithName(name), t.tell} }

// WithCallDepth returns a sink that is tapped as well.
func (t *tap) WithCallDepth(depth int) logr.LogSink {
	if inner, ok := t.LogSink.(logr.CallDepthLogSink); ok {
		return &tap{inner.WithCallDepth(depth), t.tell}
	}
	return t
}
