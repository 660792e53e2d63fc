// Package stats models the kubelet's summary of what the node, its pods and their containers use: from the runtime's stats,
// from cgroups where the runtime gives none, from proc and from the file systems. Left out: accelerators, PSI, user-defined
// metrics, the network of a pod and volumes of other than local kinds.
package stats
