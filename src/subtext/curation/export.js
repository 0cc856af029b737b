const list=document.getElementById('pairs'),by=document.getElementById('by'),way=document.getElementById('way'),
kind=document.getElementById('kind'),words=document.getElementById('words'),count=document.getElementById('count');
const every=[...list.children];
function show(){
const key=by.value,sign=way.value==='up'?1:-1,chosen=kind.value,text=words.value.toLowerCase();
every.sort((a,b)=>{const x=a.dataset[key],y=b.dataset[key];
if(x===y)return 0;if(x==='')return 1;if(y==='')return -1;return sign*(Number(x)-Number(y));});
let shown=0;
for(const pair of every){
const fits=(chosen==='all'||pair.dataset.kind===chosen||(chosen==='out'&&pair.dataset.out==='1'))
&&pair.textContent.toLowerCase().includes(text);pair.hidden=!fits;shown+=fits;list.append(pair);}
count.textContent=shown+' of '+every.length+' shown';}
for(const control of [by,way,kind])control.addEventListener('change',show);
words.addEventListener('input',show);show();
