// Package journalcmd is kdiag journal: what the logs of a node know of PLEG.
package journalcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/journal"
)

type options struct {
	cli.Flags
	since, until string
	units        []string
	boot         string
	follow       bool
	directories  []string
	files        []string
	root         string
	html         string
	year         int
	zone         string
}

const long = `Read the logs of a node and say when PLEG was not healthy: each incident with its beginning, end, worst age, what
happened around it and its likely cause, as a timeline.

Without FILE, --directory, --file or --root the node's own journal is read, and text logs where there is none. A FILE
is a journal file, a folder of logs, or text of any kind, by its content: klog, JSON, syslog, journalctl's formats,
docker's and CRI's, kubectl describe node, dmesg; compressed with gzip, xz, zstd or bzip2 or not. FILE "-" is standard
input, which is also read when nothing is named and a pipe or a file is there: kdiag journal < kubelet.log.

An episode is a stretch of time, however many records tell of it. It begins with the last relist that was good: the
time of a record minus the age in it. A kubelet that has just started also says that PLEG is not healthy, until its first
relist; that is no incident. Relists that fail until the log ends are told first, also before their age makes PLEG
unhealthy.

Times are shown in the zone of the log. --since and --until take RFC 3339, "2026-11-21 03:12:09", 03:12 (the last time
that it was that late), -15m, "15m ago", today and yesterday; what names no zone is in --zone, else in this machine's.

With --follow a line is printed for whatever happens and for each change of an episode, until Ctrl-C; with another
format than text, one document at the end.

Exit codes: 0 all was looked at and no incident found; 1 there was an incident, recovered or not, or relists fail until
the log ends; 2 nothing could be looked at (no journal, no permission, no such file, no log in it), bad usage, or
interrupted or out of time before an incident was found. Where only a part could be read, what is in it decides, and
the answer says what is missing.`

const example = `  kdiag journal                                        # this node, all that its journal has
  kdiag journal --since -2h                            # the last two hours
  kdiag journal -f --unit kubelet --unit containerd    # live
  kdiag journal --directory /mnt/dead/var/log/journal  # copied off a dead node
  kdiag journal --root /mnt/dead --boot -1             # its disk, mounted; the boot before the last
  kdiag journal kubelet.log kubelet.log.1.gz           # text, rotated and compressed
  journalctl -u kubelet -o export | kdiag journal      # a pipe
  kdiag journal --since yesterday --html incident.html # a page for the post-mortem`

// NewCommand returns kdiag journal.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:     "journal [FILE...]",
		Short:   "Find PLEG incidents in kubelet, runtime and kernel logs: a timeline, causes, evidence",
		Long:    long,
		Example: example,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := opts.check(cmd, args); err != nil {
				return err
			}
			return run(cmd.Context(), env, &opts, args, cmd.Flags().Changed("timeout"))
		},
	}
	opts.AddOutput(cmd)
	fs := cmd.Flags()
	fs.StringVar(&opts.since, "since", "", `only records from then on, such as -15m, 03:12, yesterday, "2026-11-21 03:12:09"`)
	fs.StringVar(&opts.until, "until", "", "only records up to then")
	fs.StringArrayVar(&opts.units, "unit", nil, "only records of this unit or identifier, such as kubelet; may be repeated")
	fs.StringVar(&opts.boot, "boot", "", "only records of this boot: 0 the last, -1 the one before, or a boot ID")
	fs.BoolVarP(&opts.follow, "follow", "f", false, "go on with what is logged from now on, until Ctrl-C")
	fs.StringArrayVar(&opts.directories, "directory", nil, "a folder of journal files or text logs; may be repeated")
	fs.StringArrayVar(&opts.files, "file", nil, "a pattern of files, such as 'system@*.journal'; may be repeated")
	fs.StringVar(&opts.root, "root", "", "the root of a mounted disk, whose journal and logs are read")
	fs.StringVar(&opts.html, "html", "", "also write the answer to this file, as one page that needs nothing else")
	fs.IntVar(&opts.year, "year", 0, "the year of the last record, where a log names none (default: by what the log says)")
	fs.StringVar(&opts.zone, "zone", "", "how to read stamps that name no zone: Europe/Berlin, +08:00 (default: by what the log says, else this machine's)")
	fs.DurationVar(&opts.Timeout, "timeout", cli.DefaultTimeout,
		"end by then; without it, only the node's own logs have a limit")
	fs.BoolVarP(&opts.Verbose, "verbose", "v", false, "kdiag's own log, to stderr")
	for _, flag := range []string{"since", "until", "unit", "boot", "year", "zone"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	for _, flag := range []string{"directory", "root"} {
		_ = cmd.MarkFlagDirname(flag)
	}
	return cmd
}

// bootPattern matches a number of a boot or a boot ID.
const bootPattern = `^([-+]?[0-9]{1,6}|[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`

func (o *options) check(cmd *cobra.Command, args []string) error {
	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	stdins := 0
	for _, name := range args {
		if name == stdinName {
			stdins++
		}
	}
	named := len(args) > 0 || given("directory") || given("file")
	if err := cmp.Or(
		cli.Reject(o.since == "" && given("since"), "--since is empty", "for example --since -15m"),
		cli.Reject(o.until == "" && given("until"), "--until is empty", `for example --until "2026-11-21 03:12:09"`),
		cli.Reject(slices.Contains(o.units, ""), "--unit is empty", "for example --unit kubelet"),
		cli.Reject(slices.Contains(o.directories, ""), "--directory is empty", "for example --directory /var/log/journal"),
		cli.Reject(slices.Contains(o.files, ""), "--file is empty", "for example --file 'system@*.journal'"),
		cli.Reject(slices.Contains(args, ""), "FILE is empty", "name a file, or - for standard input"),
		cli.Reject(o.root == "" && given("root"), "--root is empty", "for example --root /mnt/dead"),
		cli.Reject(o.html == "" && given("html"), "--html is empty", "name a file, such as incident.html"),
		cli.Reject(o.zone == "" && given("zone"), "--zone is empty", "for example --zone Europe/Berlin or --zone +08:00"),
		cli.Reject(
			given("boot") && !regexp.MustCompile(bootPattern).MatchString(o.boot),
			fmt.Sprintf("--boot %q is no boot", o.boot),
			"give 0 for the last, -1 for the one before, or an ID that journalctl --list-boots prints",
		),
		cli.Reject(
			given("year") && (o.year < 2014 || o.year > 9999), fmt.Sprintf("--year %d is no year of a kubelet", o.year),
			"for example --year 2026",
		),
		cli.Reject(
			given("root") && named, "--root excludes FILE, --file and --directory",
			"name the files below the root instead",
		),
		cli.Reject(stdins > 1, "FILE - is given twice", "standard input can be read once"),
		cli.Reject(o.follow && given("until"), "--follow and --until exclude each other", "leave one of them out"),
		cli.Reject(
			given("timeout") && o.Timeout == 0, "--timeout 0s leaves no time to look",
			"leave it out: files and pipes have no limit then",
		),
	); err != nil {
		return err
	}
	return o.Check(cmd)
}

// reading turns the options into those of package journal. The second result reports whether they are about this node.
func (o *options) reading(env cli.Env, args []string) (journal.Options, bool, error) {
	now := env.Now()
	r := journal.Options{Units: o.units, Boot: o.boot, Now: env.Now, Local: now.Location(), Year: o.year}
	if o.zone != "" {
		zone, err := parseZone(o.zone)
		if err != nil {
			return r, false, &cli.UsageError{
				Problem: "--zone: " + err.Error(), Hint: "give how far it is from UTC, such as --zone +08:00, or a name such as Europe/Berlin",
			}
		}
		r.Local = zone
	}
	var err error
	if r.Since, r.Until, err = parseRange(o.since, o.until, now.In(r.Local)); err != nil {
		return r, false, err
	}
	if o.since != "" && r.Since.After(now) {
		return r, false, &cli.UsageError{
			Problem: "--since " + r.Since.Format(time.RFC3339) + " has not come yet", Hint: "it is " +
				now.In(r.Local).Format(time.RFC3339) + " now",
		}
	}
	var own bool
	r.Inputs, own = inputs(env, o, args)
	return r, own, nil
}

// limit returns the context that ends the reading: by --timeout, which only this node's own logs have without being
// asked for.
func (o *options) limit(ctx context.Context, own, asked bool) (context.Context, context.CancelFunc) {
	if o.follow && !asked || !own && !asked {
		return context.WithCancel(ctx)
	}
	asking, _ := o.Budget()
	return context.WithTimeoutCause(ctx, asking, errOutOfTime)
}

// errOutOfTime is why a reading ended that took longer than --timeout.
var errOutOfTime = errors.New("not all was read within --timeout")
