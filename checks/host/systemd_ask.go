package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kdiag/kdiag/checks/together"
)

// ErrNoSystemd says that the host is run by something else.
var ErrNoSystemd = errors.New("systemd does not run this host")

const (
	// answerPatience is for the first answer. A systemd that is well answers within milliseconds; runc, which waits
	// without end (opencontainers/runc#3904), holds up a pod as long as that takes.
	answerPatience = 5 * time.Second
	// leastHang is how long a line that the end of the command cuts short must have been silent to hang.
	leastHang = time.Second
	// answersPatience is for all answers that follow.
	answersPatience = 10 * time.Second
	// maxListed bounds the units that are listed, at about 300 bytes each. Twenty thousand are a leak by their number
	// alone; a node has hundreds.
	maxListed = 20_000
)

const systemdManager = "org.freedesktop.systemd1.Manager"

// FindSystemd returns ErrNoSystemd where another manager runs the host, and nil where systemd does.
func FindSystemd(root string) error {
	// sd_booted(3) goes by this folder.
	switch _, err := os.Stat(filepath.Join(root, "run/systemd/system")); {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNoSystemd
	case err != nil:
		return fmt.Errorf("looking for systemd: %w", err)
	}
	return nil
}

// AskSystemd asks the service manager how it is, over its own socket, which needs root and no message bus, and over the
// system bus. Of each list of units it describes the first that is loaded. That nothing answers in time is no error: it
// is what was seen. Where another manager runs the host, the error is ErrNoSystemd.
func AskSystemd(ctx context.Context, root string, kubeletUnits, runtimeUnits []string) (Systemd, error) {
	if err := FindSystemd(root); err != nil {
		return Systemd{}, err
	}
	private := newLine(ctx, filepath.Join(root, "run/systemd/private"), false)
	defer private.cancel()
	bus := newLine(ctx, filepath.Join(root, "run/dbus/system_bus_socket"), true)
	defer bus.cancel()
	var both together.Group
	both.Go(private.open)
	both.Go(bus.open)
	both.Wait()
	if err := ctx.Err(); err != nil && !private.told() && !bus.told() {
		return Systemd{}, fmt.Errorf("asking systemd: %w", err)
	}
	s, line, err := hear(private, bus)
	if line == nil {
		return s, err
	}
	return s, line.describe(ctx, &s, kubeletUnits, runtimeUnits)
}

// hear says what the two lines tell of systemd, and which of them to go on with, if any.
func hear(private, bus *line) (Systemd, *line, error) {
	s := Systemd{
		Answered:    private.answered || bus.answered,
		BusAnswered: bus.answered,
		BusHung:     bus.hung,
		Hung:        private.hung || !private.answered && bus.hung,
	}
	switch {
	case private.answered:
		s.Took, s.Version = private.took, private.version
		return s, private, nil
	case bus.answered:
		s.Took, s.Version = bus.took, bus.version
		return s, bus, nil
	case s.Hung:
		s.Took = max(private.took, bus.took)
		return s, nil, nil
	}
	return s, nil, fmt.Errorf("asking systemd: %w", errors.Join(private.err, bus.err))
}

// A line is a connection to systemd. It ends with its context, and with it whatever waits for an answer.
type line struct {
	socket string
	bus    bool
	ctx    context.Context
	cancel context.CancelFunc
	conn   *dbus.Conn

	answered, hung bool
	took           time.Duration
	version        string
	err            error
}

func newLine(ctx context.Context, socket string, bus bool) *line {
	l := &line{socket: socket, bus: bus}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

// open connects and asks for the version.
func (l *line) open() {
	began := time.Now()
	late := time.AfterFunc(answerPatience, l.cancel)
	defer late.Stop()
	l.err = l.dial()
	if l.err == nil {
		l.version, l.err = get[string](l, "/org/freedesktop/systemd1", systemdManager, "Version")
	}
	l.took = time.Since(began)
	l.answered = l.err == nil
	// A socket whose queue of connections is full has nobody who takes them.
	l.hung = !l.answered && (l.ctx.Err() != nil && l.took >= leastHang || errors.Is(l.err, syscall.EAGAIN))
	l.version = short(l.version)
}

// told reports whether the line says anything of systemd: by an answer, or by its silence.
func (l *line) told() bool { return l.answered || l.hung }

func (l *line) dial() error {
	// A path may hold what separates the parts of an address.
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(l.socket), dbus.WithContext(l.ctx))
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // without the socket's name once more
	}
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", l.socket, err)
	}
	// The number of the user, since looking up its name could ask a directory on the network.
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return fmt.Errorf("authenticating on %s: %w", l.socket, err)
	}
	l.conn = conn
	if !l.bus {
		return nil // systemd's own socket knows no greeting
	}
	if err := conn.Hello(); err != nil {
		return fmt.Errorf("greeting the bus on %s: %w", l.socket, err)
	}
	return nil
}

// get asks for one property. Only those are asked for that are used: a service's environment and command line are
// properties too.
func get[T any](l *line, object dbus.ObjectPath, of, name string) (T, error) {
	var v dbus.Variant
	var value T
	err := l.conn.Object("org.freedesktop.systemd1", object).
		CallWithContext(l.ctx, "org.freedesktop.DBus.Properties.Get", 0, of, name).Store(&v)
	if err != nil {
		return value, fmt.Errorf("asking systemd for %s: %w", name, err)
	}
	value, ok := v.Value().(T)
	if !ok {
		return value, fmt.Errorf("asking systemd for %s: the answer is a %s", name, v.Signature())
	}
	return value, nil
}

func (l *line) describe(ctx context.Context, s *Systemd, kubeletUnits, runtimeUnits []string) error {
	late := time.AfterFunc(answersPatience, l.cancel)
	defer late.Stop()
	err := l.count(s)
	if err == nil {
		s.Kubelet, err = l.inUse(kubeletUnits)
	}
	if err == nil {
		s.Runtime, err = l.inUse(runtimeUnits)
	}
	if err != nil && l.ctx.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("not all answers within %v: %w", answersPatience, err)
	}
	return err
}

func (l *line) count(s *Systemd) error {
	const manager = "/org/freedesktop/systemd1"
	state, err := get[string](l, manager, systemdManager, "SystemState")
	if err != nil {
		return err
	}
	names, err := get[uint32](l, manager, systemdManager, "NNames")
	if err != nil {
		return err
	}
	jobs, err := get[uint32](l, manager, systemdManager, "NJobs")
	if err != nil {
		return err
	}
	s.State, s.Units, s.Jobs = short(state), int(names), int(jobs)
	if s.Units > maxListed {
		return nil
	}
	var units []listedUnit
	if err := l.conn.Object("org.freedesktop.systemd1", manager).
		CallWithContext(l.ctx, systemdManager+".ListUnits", 0).Store(&units); err != nil {
		return fmt.Errorf("listing systemd's units: %w", err)
	}
	s.Scopes, s.Inactive = countUnits(units)
	s.Counted = true
	return nil
}

// inUse describes that of the units which this host uses: several may be installed, as the server's and the agent's of RKE2 are.
func (l *line) inUse(names []string) (*Unit, error) {
	var best *Unit
	for _, name := range names {
		var object dbus.ObjectPath
		if err := l.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
			CallWithContext(l.ctx, systemdManager+".LoadUnit", 0, name).Store(&object); err != nil {
			return nil, fmt.Errorf("asking systemd for %s: %w", name, err)
		}
		load, err := get[string](l, object, "org.freedesktop.systemd1.Unit", "LoadState")
		if err != nil {
			return nil, err
		}
		if load == "not-found" {
			continue
		}
		unit, err := l.unit(name, object)
		if err != nil {
			return nil, err
		}
		if best == nil || unit.idleness() < best.idleness() {
			best = &unit
		}
	}
	return best, nil
}

// unit asks for what is kept of a service. A property that this systemd does not have stays empty.
func (l *line) unit(name string, object dbus.ObjectPath) (Unit, error) {
	properties := map[string]any{}
	for _, p := range unitProperties() {
		v, err := get[any](l, object, "org.freedesktop.systemd1."+p.of, p.name)
		if answer, ok := errors.AsType[dbus.Error](err); ok && answer.Name == "org.freedesktop.DBus.Error.UnknownProperty" {
			continue
		}
		if err != nil {
			return Unit{}, err
		}
		properties[p.name] = v
	}
	return newUnit(name, properties), nil
}
