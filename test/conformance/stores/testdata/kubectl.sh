# Commands whose output must be the same with Keelson and with kube-apiserver. Each line is run by sh,
# in this directory. Lines that begin with # are not run.

# The server's version, health and APIs.
kubectl version
kubectl version -o yaml
kubectl cluster-info
kubectl api-versions
kubectl api-resources --sort-by=name
kubectl api-resources -o wide --sort-by=name
kubectl api-resources -o name --namespaced=false
kubectl api-resources --api-group=apps --verbs=patch
kubectl get --raw /version/
kubectl get --raw /healthz
kubectl get --raw /livez/ping
kubectl get --raw /api
kubectl get --raw /apis/batch
kubectl get --raw /apis/nothing

# config works on the file alone, and must accept the file of either server.
kubectl config view --minify
kubectl config current-context
kubectl config get-contexts
kubectl config get-clusters
kubectl config set-context other --cluster=c --user=u --namespace=other
kubectl config use-context other
kubectl get pods
kubectl config use-context x
kubectl config rename-context other another
kubectl config delete-context another
kubectl config view -o jsonpath='{.contexts[*].name}'

# create: one generator for each kind.
kubectl create serviceaccount default
kubectl create serviceaccount robot
kubectl create namespace other
kubectl create namespace other
kubectl create namespace Wrong_Name
kubectl create configmap settings --from-literal=a=1 --from-literal=b=2
kubectl create configmap settings --from-literal=a=1
kubectl create secret generic password --from-literal=password=secret
kubectl create secret docker-registry registry --docker-server=r.example.com --docker-username=u --docker-password=p
kubectl create role reader --verb=get,list --resource=pods,deployments.apps
kubectl create rolebinding readers --role=reader --serviceaccount=default:robot --group=people
kubectl create clusterrole node-reader --verb=get --resource=nodes
kubectl create clusterrole sum --aggregation-rule=a=b
kubectl create clusterrolebinding node-readers --clusterrole=node-reader --user=jane
kubectl create quota limits --hard=configmaps=50,services=20
kubectl create priorityclass high --value=1000 --description='more important'
kubectl create poddisruptionbudget half --selector=app=web --min-available=50%
kubectl create deployment made --image=example.com/made:1 --replicas=2 --port=80
kubectl create job once --image=example.com/job -- /bin/true
kubectl create cronjob often --image=example.com/job --schedule='*/5 * * * *'
kubectl create cronjob never --image=example.com/job --schedule='not a schedule'
kubectl create job from-cron --from=cronjob/often
kubectl create service clusterip plain --tcp=80:8080
kubectl create service nodeport node --tcp=80:8080
kubectl create service externalname elsewhere --external-name=example.com
kubectl create service clusterip headless --clusterip=None --tcp=80
kubectl create ingress site --rule='example.com/*=plain:80,tls=cert'
kubectl create deployment dry --image=example.com/dry --dry-run=server -o yaml
kubectl create configmap dry --from-literal=a=1 --dry-run=client -o yaml
kubectl create token robot --duration=1h | grep -c '^eyJ'
kubectl create token robot --duration=1s
kubectl create token robot --audience=other --bound-object-kind=Secret --bound-object-name=password | grep -c '^eyJ'
kubectl create token nobody

# apply, on the client and on the server.
kubectl apply -f crd.yaml
kubectl wait --for=condition=Established crd/widgets.stores.example.com --timeout=60s
kubectl apply -f objects.yaml
kubectl apply -f objects.yaml
kubectl apply -f objects-2.yaml --dry-run=server
kubectl diff -f objects.yaml
kubectl diff -f objects-2.yaml
kubectl apply -f objects-2.yaml
kubectl diff -f objects-2.yaml
kubectl diff --server-side -f objects.yaml
kubectl apply --server-side -f objects.yaml
kubectl apply --server-side --force-conflicts -f objects.yaml
kubectl apply --server-side --field-manager=other -f applied.yaml
kubectl apply --server-side --field-manager=another -f applied.yaml
kubectl apply --server-side --field-manager=another -f applied-2.yaml
kubectl apply --server-side --field-manager=another --force-conflicts -f applied-2.yaml
# Sorted, because the order of managed fields depends on the seconds in which the writes happened.
kubectl get configmap applied -o yaml --show-managed-fields | sort
kubectl apply -f invalid.yaml
kubectl apply -f invalid.yaml --validate=ignore
kubectl apply -f invalid.yaml --validate=warn
kubectl apply view-last-applied deployment/web
kubectl apply -f unknown-kind.yaml

# get, in all forms.
kubectl get all
kubectl get all -o wide
kubectl get all -o name
kubectl get all --show-labels
kubectl get deployment web -o yaml
kubectl get deployment web -o json
kubectl get deployments.v1.apps web -o jsonpath='{.spec.template.spec.containers[*].image}{"\n"}'
kubectl get deployments -o custom-columns=NAME:.metadata.name,REPLICAS:.spec.replicas
kubectl get deployments -o go-template='{{range .items}}{{.metadata.name}} {{end}}'
kubectl get services --sort-by=.metadata.name
kubectl get pods -l app=web --show-kind
kubectl get pods --field-selector=status.phase=Pending
kubectl get pods --field-selector=spec.nonsense=x
kubectl get pods -l 'app in ('
kubectl get pod web-0 -o wide
kubectl get pod web-0 --output-watch-events --watch --request-timeout=1s
kubectl get pod nothing
kubectl get nothing
kubectl get configmaps -A
kubectl get namespaces
kubectl get nodes -o wide
kubectl get nodes --label-columns=zone
kubectl get roles,rolebindings -o wide
kubectl get clusterrole admin -o yaml
kubectl get clusterrolebindings -o wide
kubectl get flowschemas
kubectl get prioritylevelconfigurations
kubectl get priorityclasses
kubectl get secrets
kubectl get serviceaccounts
kubectl get resourcequotas
kubectl get limitranges
kubectl get ingresses
kubectl get networkpolicies
kubectl get poddisruptionbudgets
kubectl get horizontalpodautoscalers
kubectl get persistentvolumes,persistentvolumeclaims,storageclasses
kubectl get csr
kubectl get crd widgets.stores.example.com
kubectl get widgets
kubectl get widgets -o wide
kubectl get widget one -o yaml
kubectl get leases -A --no-headers | grep -c apiserver
kubectl get endpointslices
kubectl get servicecidrs
kubectl get jobs,cronjobs
kubectl get deployment web --subresource=status -o jsonpath='{.status}'
kubectl get --raw '/api/v1/namespaces/default/configmaps?limit=1' | grep -c continue
kubectl get -f objects.yaml
kubectl get deployments --chunk-size=1 -o name

# describe.
kubectl describe deployment web
kubectl describe pod web-0
kubectl describe service plain
kubectl describe node n1
kubectl describe namespace default
kubectl describe configmap settings
kubectl describe secret password
kubectl describe serviceaccount robot
kubectl describe role reader
kubectl describe clusterrolebinding node-readers
kubectl describe ingress site
kubectl describe quota limits
kubectl describe pdb half
kubectl describe cronjob often
kubectl describe crd widgets.stores.example.com
kubectl describe widget one
kubectl describe hpa web
kubectl describe networkpolicy
kubectl describe pvc data
kubectl describe priorityclass high
kubectl describe nothing

# Changes.
kubectl label deployment web tier=front
kubectl label deployment web tier=back
kubectl label deployment web tier=back --overwrite
kubectl label deployment web tier-
kubectl label pods --all checked=yes
kubectl label deployment web 'not valid=x'
kubectl annotate deployment web note='a note'
kubectl annotate deployment web note-
kubectl annotate deployment web --list
kubectl patch deployment web -p '{"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "example.com/web:3"}]}}}}'
kubectl patch deployment web --type=merge -p '{"spec": {"paused": true}}'
kubectl patch deployment web --type=json -p '[{"op": "remove", "path": "/spec/paused"}]'
kubectl patch deployment web --type=json -p '[{"op": "test", "path": "/spec/replicas", "value": 77}]'
kubectl patch deployment web -p '{"spec": {"replicas": -1}}'
kubectl patch deployment web -p '{"spec": {"selector": {"matchLabels": {"app": "other"}}}}'
kubectl patch deployment web -p 'no json'
kubectl patch widget one --type=merge -p '{"spec": {"size": 4}}'
kubectl patch widget one --type=merge -p '{"spec": {"size": "large"}}'
kubectl patch widget one -p '{"spec": {"size": 4}}'
kubectl patch deployment web --subresource=status --type=merge -p '{"status": {"replicas": 2, "updatedReplicas": 1, "observedGeneration": 100}}'
KUBE_EDITOR='sed -i s/example.com.web:3/example.com\/web:4/' kubectl edit deployment web
KUBE_EDITOR='sed -i s/replicas:.*/replicas:\ -4/' kubectl edit deployment web 2>&1 | grep -v /tmp/
KUBE_EDITOR=true kubectl edit deployment web
kubectl set image deployment/web web=example.com/web:5
kubectl set env deployment/web COLOUR=blue
kubectl set env deployment/web --list
kubectl set resources deployment/web --limits=cpu=200m,memory=512Mi
kubectl set serviceaccount deployment/web robot
kubectl set selector service/plain app=web
kubectl set subject rolebinding readers --user=joe
kubectl replace -f applied.yaml
kubectl replace -f unknown.yaml
kubectl scale deployment web --replicas=3
kubectl scale deployment web --replicas=4 --current-replicas=7
kubectl scale statefulset db --replicas=2
kubectl scale widget one --replicas=5
kubectl scale configmap settings --replicas=5
kubectl autoscale deployment made --min=1 --max=5 --cpu=50%
kubectl expose deployment web --port=80 --target-port=8080 --name=exposed
kubectl expose deployment web --port=80 --name=exposed
kubectl run single --image=example.com/single --labels=app=single --env=A=B
kubectl rollout status deployment/web --watch=false
kubectl rollout status statefulset/db --watch=false
kubectl rollout status daemonset/agent --watch=false
kubectl rollout history deployment/web
kubectl rollout pause deployment/web
kubectl rollout pause deployment/web
kubectl rollout resume deployment/web
kubectl rollout restart deployment/made
kubectl rollout undo deployment/web
kubectl rollout status deployment/web --timeout=1s
kubectl taint node n1 key=value:NoSchedule
kubectl taint node n1 key=value:NoSchedule
kubectl taint node n1 key-
kubectl cordon n1
kubectl cordon n1
kubectl drain n1 --ignore-daemonsets
kubectl drain n1 --ignore-daemonsets --force --dry-run=server
kubectl uncordon n1
kubectl certificate approve jane
kubectl certificate deny jane
kubectl get csr jane -o jsonpath='{.status.conditions[*].type}'

# Rights.
kubectl auth whoami
kubectl auth can-i create pods
kubectl auth can-i '*' '*'
kubectl auth can-i get pods --as=system:serviceaccount:default:robot
kubectl auth can-i delete pods --as=system:serviceaccount:default:robot
kubectl auth can-i get pods/log --as=jane -v=0
kubectl auth can-i --list --as=system:serviceaccount:default:robot
kubectl auth can-i --list --as=jane -n other
kubectl auth reconcile -f rights.yaml
kubectl auth reconcile -f rights.yaml
kubectl get pods --as=jane
kubectl get nodes --as=jane
kubectl delete pod web-0 --as=jane
kubectl create deployment no --image=x --as=jane --as-group=people
kubectl get secrets --token=wrong

# Events, and waiting.
kubectl events
kubectl events --for=pod/web-0
kubectl events --types=Warning -A
kubectl get events
kubectl get events --field-selector=reason=Test -o wide
kubectl wait --for=jsonpath='{.spec.replicas}'=3 deployment/web --timeout=5s
kubectl wait --for=condition=Available deployment/web --timeout=1s
kubectl wait --for=delete pod/nothing --timeout=1s
kubectl wait --for=create configmap/settings --timeout=5s
kubectl wait --for=condition=Ready pod --all --timeout=1s
kubectl wait --for=condition=Ready pod/nothing --timeout=1s

# explain.
kubectl explain pod
kubectl explain pod.spec.containers.resources
kubectl explain deployment --recursive
kubectl explain deployments.v1.apps.spec.strategy
kubectl explain hpa --api-version=autoscaling/v1
kubectl explain crd.spec.versions
kubectl explain widget.spec
kubectl explain pod.spec.nonsense
kubectl explain nothing
kubectl explain service.spec --output=plaintext-openapiv2

# Requests that need a node, which does not exist.
kubectl logs web-0
kubectl logs deployment/web
kubectl exec web-0 -- true
kubectl attach web-0
kubectl port-forward web-0 8080:80
kubectl top pods
kubectl top nodes

# delete.
kubectl delete pod web-0 --dry-run=server
kubectl delete pod web-0 --wait=false
kubectl get pod web-0
kubectl delete pod web-0 --force
kubectl delete pod web-0
kubectl delete pod web-0 --ignore-not-found
kubectl delete configmap settings applied
kubectl delete deployment -l app=web
kubectl delete deployment made --cascade=orphan --wait=false
kubectl delete deployments --all --wait=false
kubectl delete services --all --wait=false
kubectl delete all --all --wait=false
kubectl delete -f objects.yaml --wait=false
kubectl delete widget --all --wait=false
kubectl delete crd widgets.stores.example.com
kubectl get widgets
kubectl delete namespace other --wait=false
kubectl get namespace other -o jsonpath='{.status.phase}'
kubectl create configmap late --from-literal=a=1 -n other
kubectl delete --raw /api/v1/namespaces/default/configmaps/nothing
kubectl delete node n1
