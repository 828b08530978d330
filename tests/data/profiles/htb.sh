#!/bin/sh
# the village, made up, with classes
tc qdisc add dev eth0 root handle 1: htb default 10
tc class add dev eth0 parent 1: classid 1:10 htb rate 500kbit
tc qdisc add dev eth0 parent 1:10 handle 10: netem delay 30ms 5ms distribution normal loss 1%
tc qdisc add dev ifb0 root handle 1: htb default 20
tc class add dev ifb0 parent 1: classid 1:1 htb rate 3mbit burst 15k
tc class add dev ifb0 parent 1:1 classid 1:20 htb rate 1mbit ceil 10mbit prio 1
