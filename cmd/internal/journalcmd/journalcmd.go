// Package journalcmd is kdiag journal: what the logs of a node know of PLEG.
package journalcmd

import (
	"cmp"
	"fmt"
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
	details      bool

	timed bool // the reading ends by --timeout
}

const long = `Read the logs of a node and show when PLEG was not healthy: each incident with its beginning, end and
worst age, its likely cause and evidence. The text fits one screen; --details adds what happened in each incident, the
timeline, signatures and sources.

Without FILE, --directory, --file or --root the node's own journal is read, and text logs where there is none. A FILE
is a journal file, a folder of logs, or text of any kind, compressed or not; "-" is standard input, which is also read
when nothing is named and a pipe or a file is there.

An incident begins with the last good relist: the time of a record minus the age in it. That the node was NotReady for
another reason (no pod network, runtime not ready or down) is an incident too. A kubelet that has just started also logs
that PLEG is not healthy, until its first relist; that is not an incident.

Times are shown in the zone of the log. --since and --until take RFC 3339, "2026-11-21 03:12:09", 03:12 (the last time
that it was that late) and -15m; what names no zone is in --zone, else in this machine's.

Exit codes: 0 no incident found; 1 there was an incident, recovered or not, or relists fail or the kubelet crashes again
and again until the log ends; 2 nothing could be looked at, bad usage, or interrupted or out of time before an incident
was found.`

const example = `  kdiag journal                                        # this node, all that its journal has
  kdiag journal -f --unit kubelet --unit containerd    # live
  kdiag journal --root /mnt/dead --boot -1             # its disk, mounted; the boot before the last
  kdiag journal kubelet.log kubelet.log.1.gz           # text, rotated and compressed
  journalctl -u kubelet -o export | kdiag journal      # a pipe
  kdiag journal --from kdiag-node-7.tar.zst            # the logs in an archive of kdiag bundle
  kdiag journal --since -24h --html incident.html      # a page for the post-mortem`

// NewCommand returns kdiag journal.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:     "journal [FILE...]",
		Short:   "Find PLEG incidents in kubelet, runtime and kernel logs: a timeline, causes, evidence",
		Long:    long,
		Example: example,
		Args:    cobra.ArbitraryArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), opts.Host(env), &opts, args)
		},
	}
	opts.AddFrom(cmd)
	opts.AddOutput(cmd)
	fs := cmd.Flags()
	fs.StringVar(&opts.since, "since", "", `only records since then, such as -15m, 03:12, "2026-11-21 03:12:09"`)
	fs.StringVar(&opts.until, "until", "", "only records until then")
	fs.StringArrayVar(&opts.units, "unit", nil, "only records of this unit, such as kubelet; may be repeated")
	fs.StringVar(&opts.boot, "boot", "", "only records of this boot: 0 the last, -1 the one before, or a boot ID")
	fs.BoolVarP(&opts.follow, "follow", "f", false, "follow new records until Ctrl-C")
	fs.StringArrayVar(&opts.directories, "directory", nil, "a folder of journal files or text logs; may be repeated")
	fs.StringArrayVar(&opts.files, "file", nil, "a pattern of files, such as 'system@*.journal'; may be repeated")
	fs.StringVar(&opts.root, "root", "", "read the journal and logs of a disk mounted here")
	fs.BoolVar(&opts.details, "details", false, "print all incidents, signatures, sources and notes")
	fs.StringVar(&opts.html, "html", "", "also write the report to this file as one self-contained page")
	fs.IntVar(&opts.year, "year", 0, "year of the last record, for logs without years")
	fs.StringVar(&opts.zone, "zone", "", "time zone of times without one, such as +08:00 (default: this machine's)")
	fs.DurationVarP(&opts.Timeout, "timeout", "t", cli.DefaultTimeout,
		"end by then; logs named on the command line have no limit without it")
	opts.AddHostRoot(cmd)
	opts.AddVerbose(cmd, "print kdiag's log to stderr")
	return cmd
}

// check reports the first flag with a bad value, before anything is read.
func (o *options) check(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed
	o.timed = given("timeout")
	return cmp.Or(
		cli.RejectEmpty(cmd, "since", "until", "root", "html", "zone"),
		cli.Reject(given("year") && (o.year < 2014 || o.year > 9999),
			fmt.Sprintf("--year %d is not a year of a kubelet", o.year), "for example --year 2026"),
		cli.Reject(given("root") && len(args)+len(o.directories)+len(o.files) > 0,
			"--root excludes FILE, --file and --directory", "name the files below the root instead"),
		o.CheckFrom(cmd, args, "since", "until", "unit", "boot", "year", "zone", "html"), o.Check(cmd, nil),
	)
}

// stdinName is how a person names standard input.
const stdinName = "-"

// reading turns the options into those of package journal. from are the logs of --from.
func (o *options) reading(env cli.Env, args []string, from []journal.Input) (r journal.Options, err error) {
	now := env.Now()
	r = journal.Options{Units: o.units, Boot: o.boot, Now: env.Now, Local: now.Location(), Year: o.year}
	if o.zone != "" {
		if r.Local, err = parseZone(o.zone); err != nil {
			return r, err
		}
	}
	r.Since, r.Until, err = cli.ParseRange(o.since, o.until, now.In(r.Local))
	stdin := journal.Input{Kind: journal.Stream, Path: stdinName, Reader: env.In}
	for _, name := range args {
		r.Inputs = append(r.Inputs, journal.Input{Path: name})
	}
	if i := slices.Index(args, stdinName); i >= 0 {
		r.Inputs[i] = stdin
	}
	for _, pattern := range o.files {
		r.Inputs = append(r.Inputs, journal.Input{Kind: journal.Glob, Path: pattern})
	}
	for _, dir := range o.directories {
		r.Inputs = append(r.Inputs, journal.Input{Path: dir})
	}
	switch {
	case from != nil:
		r.Inputs = from
	case o.root != "":
		r.Inputs = []journal.Input{{Kind: journal.Root, Path: o.root}}
	case len(r.Inputs) > 0:
	case cli.HoldsText(env.In):
		r.Inputs = []journal.Input{stdin}
	default:
		r.Inputs = []journal.Input{{Kind: journal.Root, Path: env.Root}}
		o.timed = o.timed || !o.follow // this node's own logs may be endless, or hang
	}
	return r, err
}

// parseZone reads the name of a zone, or how far it is from UTC.
func parseZone(s string) (*time.Location, error) {
	if at, err := time.Parse("Z07:00", s); err == nil {
		_, offset := at.Zone()
		return time.FixedZone(s, offset), nil
	}
	zone, err := time.LoadLocation(s)
	if err != nil {
		return nil, cli.Usage(fmt.Sprintf("--zone: %q is not a time zone", s),
			"give the distance from UTC, such as --zone +08:00, or a name such as Europe/Berlin")
	}
	return zone, nil
}
