package host

import "time"

// A Mount is one line of the host's mount table, with what became of asking it for an answer.
type Mount struct {
	Point   string
	Type    string // nfs4, fuse.s3fs, ext4, tmpfs, ...
	Source  string // server:/export, device, or a name
	Network bool   // answers depend on another machine or on a process: nfs, cifs, ceph, fuse, 9p, ...
	PodUID  string // from /var/lib/kubelet/pods/UID/...
	Volume  string // the volume's name in the pod, or the driver's volume for a global mount
	Driver  string // the plugin: kubernetes.io~csi, kubernetes.io~nfs, ...

	Asked   bool
	Took    time.Duration // until it answered
	Err     string        // what it answered, when that was an error: stale file handle, transport endpoint is not connected
	Hung    bool          // no answer in time
	Waiting time.Duration // for how long a look has been waiting, earlier runs of kdiag included
	PID     int           // the process of kdiag's that waits in it, 0 for none
}

// A MountTable is the host's mounts, counted, and those that matter to the kubelet, probed.
type MountTable struct {
	Total   int
	ByType  map[string]int
	Kubelet int     // below the kubelet's folder
	Probed  []Mount // below the kubelet's folder, and every one over the network; bounded, hung ones first
	Left    int     // that were not probed because there are too many, or the time was up
}
