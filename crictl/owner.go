package crictl

import (
	"strings"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// An Owner is the workload that a pod belongs to, as far as the labels of its sandbox show it without an API server.
type Owner struct {
	Kind string // Deployment, StatefulSet, DaemonSet, Job or CronJob; empty when the labels show none
	Name string
}

// Labels of the workload controllers.
const (
	LabelTemplateHash = "pod-template-hash"                  // of Deployments
	LabelJob          = "batch.kubernetes.io/job-name"       // since 1.27
	LabelJobOld       = "job-name"                           // of all versions
	LabelSetPod       = "statefulset.kubernetes.io/pod-name" // of StatefulSets
	LabelPodIndex     = "apps.kubernetes.io/pod-index"       // of StatefulSets, since 1.28
	LabelRevision     = "controller-revision-hash"           // of StatefulSets and DaemonSets
)

var (
	ordinal  = lazyregexp.New(`-[0-9]+$`)      // of a StatefulSet's pod
	suffix   = lazyregexp.New(`-[a-z0-9]{5}$`) // of a generated name
	schedule = lazyregexp.New(`-[0-9]{8}$`)    // of a CronJob's Job: the minutes since 1970
)

// ownerOf derives the owner from the pod's name and the values of the labels, which are empty where there is none.
func ownerOf(pod, hash, job, set, revision string) Owner {
	switch {
	case job != "" && schedule.MatchString(job):
		return Owner{"CronJob", schedule.ReplaceAllString(job, "")}
	case job != "":
		return Owner{"Job", job}
	case hash != "":
		if at := strings.LastIndex(pod, "-"+hash+"-"); at > 0 {
			return Owner{"Deployment", pod[:at]}
		}
	case set != "" || revision != "" && ordinal.MatchString(pod) && !suffix.MatchString(pod):
		return Owner{"StatefulSet", ordinal.ReplaceAllString(pod, "")}
	case revision != "":
		return Owner{"DaemonSet", suffix.ReplaceAllString(pod, "")}
	}
	return Owner{}
}
